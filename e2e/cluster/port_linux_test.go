package cluster

import "testing"

func TestReservedPortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		p, err := reservePort()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.release)
		if seen[p.number] {
			t.Fatalf("port %d was reserved twice", p.number)
		}
		seen[p.number] = true
	}
}
