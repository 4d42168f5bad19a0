// Command devcluster is a whole Kubernetes in one static binary. The first argument names the program to run:
//
//	devcluster kube-apiserver --help
//
// A file name works as well, so that a link called "kubectl" is kubectl.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if run, ok := commands[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run, ok := commands[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	names := make([]string, 0, len(commands))
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: devcluster COMMAND [ARGUMENTS]\ncommands: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}
