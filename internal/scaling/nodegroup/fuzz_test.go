package nodegroup

import (
	"testing"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// FuzzDelete: whatever nodes are named, a pool gets no fewer machines than its least and no more
// than it had, only the end of the array goes, and what was asked for twice is done once.
func FuzzDelete(f *testing.F) {
	f.Add("ssbb", byte(0), byte(0), byte(0), []byte{3, 2}, "prod-vm-wp-3-abcde", "")
	f.Add("sss", byte(1), byte(2), byte(4), []byte{2, 200}, "", "k3s://prod-vm-wp-2-abcde")
	f.Add("sSb-sd", byte(0), byte(1), byte(1), []byte{201, 5, 4}, "", "")
	f.Add("ss", byte(0), byte(2), byte(0), []byte{1}, "", "ksctl-failed://team/prod/small/1")
	f.Fuzz(func(t *testing.T, array string, least, failed, more byte, picks []byte, name, id string) {
		c := fuzzed(array, least, failed, more)
		var asked []Node
		for _, pick := range picks { // a worker, or a machine that could not be made
			at := int(pick)
			switch {
			case at >= 200:
				asked = append(asked, Node{Name: placeholder(c.Groups[at%2].ID, at/2%4)})
			case len(c.Workers) > 0:
				asked = append(asked, nodes(c, at%len(c.Workers))...)
			}
		}
		if name+id != "" {
			asked = append(asked, Node{Name: name, ProviderID: id})
		}
		for i := range c.Groups {
			before, leaving := c.standings()
			g := c.Groups[i]
			changes, err := Delete(c, g.ID, asked)
			if err != nil {
				if len(changes) > 0 {
					t.Fatalf("%v with %v", changes, err)
				}
				continue
			}
			if len(changes) == 0 {
				continue
			}
			change := changes[0]
			if len(changes) > 1 || change.Pool != g.Name || change.Target >= g.Target && change.Forgive == 0 || change.Target > g.Target || change.Target < 0 ||
				change.Forgive < 0 || int(change.Forgive) > g.failed() {
				t.Fatalf("%+v of %+v", changes, g)
			}
			after := *c
			after.Groups = append([]Group(nil), c.Groups...)
			apply(&after, changes)
			now, left := after.standings()
			gone := 0
			for at := range left {
				if left[at] && !leaving[at] {
					gone++
				}
				if !left[at] && leaving[at] {
					t.Fatalf("worker %d comes back", at)
				}
			}
			if gone == 0 {
				continue
			}
			if now[i].staying < int(g.Min) || now[i].staying != before[i].staying-gone {
				t.Fatalf("%d of %d machines stay, %d go, the least is %d", now[i].staying, before[i].staying, gone, g.Min)
			}
			for at := len(left) - 1; at >= 0 && gone > 0; at-- {
				if !left[at] {
					t.Fatalf("worker %d stays behind one that goes", at)
				}
				if !leaving[at] {
					gone--
				}
			}
			again, err := Delete(&after, g.ID, asked)
			if err == nil && len(again) > 0 && again[0].Target+again[0].Forgive < after.Groups[i].Target {
				t.Fatalf("deleted twice: %+v then %+v", changes, again)
			}
		}
	})
}

// fuzzed is a cluster whose workers are the letters of array: s and b for those of the pools, S
// and B for those that have not joined, d for one of small that is being deleted.
func fuzzed(array string, least, failed, more byte) *Cluster {
	if len(array) > 64 {
		array = array[:64]
	}
	var all []Worker
	count := map[string]int32{}
	for i, letter := range []byte(array) {
		w := joined(i, "")
		switch letter {
		case 's', 'S', 'd':
			w.Pool = "small"
		case 'b', 'B':
			w.Pool = "big"
		}
		if letter == 'S' || letter == 'B' {
			unjoined(&w)
		}
		w.Deleting = letter == 'd'
		if !w.Deleting {
			count[w.Pool]++
		}
		all = append(all, w)
	}
	c := cluster(count["small"]+int32(failed%4)+int32(more%2), count["big"]+int32(more/2%2), all...)
	c.Mode = clusterv1.ScalingAuto
	c.Groups[0].Min, c.Groups[1].Min = int32(least%4), int32(least/4%4)
	if failed%4 > 0 {
		c.Groups[0].Failure = &Failure{Code: "x", Count: int32(failed % 4)}
	}
	return c
}
