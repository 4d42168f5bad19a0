package gpuid

import "testing"

func TestIdentityOutlivesARestartAndDiffersByNodeAndIndex(t *testing.T) {
	first, again := UUIDs("node-0", 4), UUIDs("node-0", 4)
	seen := map[string]bool{}
	for index := range first {
		if first[index] != again[index] {
			t.Errorf("GPU %d changed its identity: %s, then %s", index, first[index], again[index])
		}
		seen[first[index]] = true
	}
	for _, id := range UUIDs("node-1", 4) {
		seen[id] = true
	}
	if len(seen) != 8 {
		t.Errorf("8 GPUs on two nodes have %d identities", len(seen))
	}
}

func TestIndexIsTheInverseOfUUID(t *testing.T) {
	if index, ok := Index("node-0", UUID("node-0", 3)); !ok || index != 3 {
		t.Errorf("got %d, %t; want 3, true", index, ok)
	}
	if _, ok := Index("node-1", UUID("node-0", 3)); ok {
		t.Error("a GPU of node-0 was found on node-1")
	}
}
