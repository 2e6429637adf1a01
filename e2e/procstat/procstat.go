// Package procstat reads the resource usage of processes from /proc of Linux. On other systems
// every value is zero.
package procstat

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is USER_HZ of Linux: the clock ticks per second in /proc.
const userHZ = 100

// CPUTime returns the CPU time of a process, and that of its terminated children.
func CPUTime(pid int) (own, waited time.Duration) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var n [4]int
	for i := range n {
		n[i], _ = strconv.Atoi(fields[11+i])
	}
	return time.Duration(n[0]+n[1]) * time.Second / userHZ, time.Duration(n[2]+n[3]) * time.Second / userHZ
}

// Memory returns a memory value of a process in bytes, by its name in /proc/<pid>/status.
func Memory(pid int, name string) int64 { return Bytes(fmt.Sprintf("/proc/%d/status", pid), name) }

// Bytes returns a value in kB of a file, see [Field], in bytes.
func Bytes(file, name string) int64 {
	kib, _ := strconv.ParseInt(strings.TrimSuffix(Field(file, name), " kB"), 10, 64)
	return kib << 10
}

// Field returns a value from a file of lines "name : value".
func Field(file, name string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
