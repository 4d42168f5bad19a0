// Command testpod is the smallest pod with an emulated GPU: it claims a constant share of the time of each GPU that it was
// given, and says so on a metrics page as the emulated models do. End-to-end tests use it where a Triton would be too much.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	listen := flag.String("listen", ":8002", "address to serve on")
	busy := flag.Float64("busy", 0.3, "share of its time that each GPU is busy")
	cores := flag.Float64("cores", 2, "emulated cores in use")
	memory := flag.Float64("memory-mib", 20480, "memory in use on each GPU")
	flag.Parse()

	var gpus []string
	if visible := os.Getenv("NVIDIA_VISIBLE_DEVICES"); visible != "" {
		gpus = strings.Split(visible, ",")
	}
	start := time.Now()
	http.HandleFunc("/visible", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Join(gpus, "\n"))
	})
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		uptime := time.Since(start).Seconds()
		for _, gpu := range gpus {
			fmt.Fprintf(w, "emulated_gpu_busy_seconds_total{gpu=%q,instance=\"0\"} %f\n", gpu, *busy*uptime)
			fmt.Fprintf(w, "emulated_gpu_memory_used_mib{gpu=%q,instance=\"0\"} %f\n", gpu, *memory)
		}
		fmt.Fprintf(w, "emulated_cpu_seconds_total{instance=\"0\"} %f\n", *cores*uptime)
	})
	log.Fatal(http.ListenAndServe(*listen, nil))
}
