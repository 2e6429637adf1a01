package nodegroup

const (
	mib = 1 << 20
	gib = 1 << 30
)

// step is a rate that holds up to a size; the last one has no end.
type step struct {
	size int64
	// parts of ten thousand.
	parts int64
}

// What a kubelet of ksctl's keeps for itself: 60m of the first core, 10m of the second, 5m of
// the third and fourth each and 2.5m of each further one; of memory, a quarter of the first
// 4 GiB, and less of what is above.
var (
	cpuSteps    = []step{{1000, 600}, {1000, 100}, {2000, 50}, {0, 25}}
	memorySteps = []step{{4 * gib, 2500}, {4 * gib, 2000}, {8 * gib, 1000}, {112 * gib, 600}, {0, 200}}
)

const (
	// The system is given so much beside, and pods are evicted before all memory is used.
	systemCPU, systemMemory, evictionMemory = 100, 200 * mib, 100 * mib
	leastMemory                             = 255 * mib
)

// reservedCPU is what pods can't have, in thousandths of a CPU.
func reservedCPU(of int64) int64 { return stepped(of, cpuSteps) + systemCPU }

// reservedMemory is what pods can't have, in bytes.
func reservedMemory(of int64) int64 {
	return max(stepped(of, memorySteps), leastMemory) + systemMemory + evictionMemory
}

// stepped adds up what each step takes of a number, rounded down.
func stepped(of int64, steps []step) int64 {
	var taken int64
	for _, s := range steps {
		part := of
		if s.size > 0 {
			part = min(of, s.size)
		}
		taken += part/10_000*s.parts + part%10_000*s.parts/10_000
		of -= part
	}
	return taken
}
