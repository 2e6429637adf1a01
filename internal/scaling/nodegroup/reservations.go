package nodegroup

import "math"

const (
	mib = 1 << 20
	gib = 1 << 30
)

// reservationStep is the share that is reserved of the next part of a resource.
type reservationStep struct {
	size int64
	// perTenThousand is the reserved share.
	perTenThousand int64
}

// Resources that the kubelet of a ksctl machine reserves: 60m of the first core, 10m of the second,
// 5m each of the third and fourth, and 2.5m of each further one; of memory, a quarter of the first
// 4 GiB, and smaller shares of the rest.
var (
	cpuSteps    = []reservationStep{{1000, 600}, {1000, 100}, {2000, 50}, {math.MaxInt64, 25}}
	memorySteps = []reservationStep{{4 * gib, 2500}, {4 * gib, 2000}, {8 * gib, 1000}, {112 * gib, 600},
		{math.MaxInt64, 200}}
)

const (
	// Also reserved are CPU and memory for the system, and memory for the eviction threshold: pods
	// are evicted before all memory is used.
	systemCPU, systemMemory, evictionMemory = 100, 200 * mib, 100 * mib
	minReservedMemory                       = 255 * mib
)

// reservedCPU returns the CPU that is not available to pods, in thousandths of a CPU.
func reservedCPU(total int64) int64 { return sumSteps(total, cpuSteps) + systemCPU }

// reservedMemory returns the memory that is not available to pods, in bytes.
func reservedMemory(total int64) int64 {
	return max(sumSteps(total, memorySteps), minReservedMemory) + systemMemory + evictionMemory
}

// sumSteps returns the sum of the shares of all steps, each rounded down.
func sumSteps(rest int64, steps []reservationStep) int64 {
	var taken int64
	for _, s := range steps {
		part := min(rest, s.size)
		taken += part/10_000*s.perTenThousand + part%10_000*s.perTenThousand/10_000
		rest -= part
	}
	return taken
}
