// Package gpuid names the emulated GPUs. An identity follows from the node's name and the device's index alone, so that the
// device plugin (which hands GPUs out) and the exporter (which reports on them) agree without talking to each other, and a
// restart of either changes nothing.
package gpuid

import (
	"fmt"

	"github.com/google/uuid"
)

// MaxPerNode bounds the search in Index; real machines stop at 16.
const MaxPerNode = 64

// UUID returns the identity of GPU number index of a node, in NVIDIA's spelling: "GPU-" and a UUID.
func UUID(node string, index int) string {
	name := fmt.Sprintf("%s.gpu.devcluster.inferenceslo.dev/%d", node, index)
	return "GPU-" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String()
}

// UUIDs returns the identities of GPUs 0 … count-1 of a node, in the order of their index.
func UUIDs(node string, count int) []string {
	all := make([]string, count)
	for index := range all {
		all[index] = UUID(node, index)
	}
	return all
}

// Index finds the index that belongs to an identity on a node; false when the identity is not one of the node's.
func Index(node, id string) (int, bool) {
	for index := range MaxPerNode {
		if UUID(node, index) == id {
			return index, true
		}
	}
	return 0, false
}
