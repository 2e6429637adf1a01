package nodegroup

import (
	"testing"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// FuzzDelete: for any nodes in the request, all of them are removed or none, a pool keeps at least
// minSize machines and gets no more than it had, only the end of the array is deleted, and a
// repeated request has no effect.
func FuzzDelete(f *testing.F) {
	f.Add("ssbb", byte(0), byte(0), byte(0), []byte{3, 2}, "prod-vm-wp-3-abcde", "")
	f.Add("sss", byte(1), byte(2), byte(4), []byte{2, 200}, "", "k3s://prod-vm-wp-2-abcde")
	f.Add("sSb-sd", byte(0), byte(1), byte(1), []byte{201, 5, 4}, "", "")
	f.Add("ss", byte(0), byte(2), byte(0), []byte{1}, "", "ksctl-failed://team/prod/small/1")
	f.Add("ss", byte(0), byte(2), byte(0), []byte{1, 0, 201}, "", "")
	f.Fuzz(func(t *testing.T, array string, minSizes, failed, more byte, picks []byte, name, id string) {
		c := fuzzedCluster(array, minSizes, failed, more)
		var asked []Node
		for _, pick := range picks { // a worker or a placeholder
			at := int(pick)
			switch {
			case at >= 200:
				asked = append(asked, Node{Name: placeholderID(c.Groups[at%2].ID, at/2%4)})
			case len(c.Workers) > 0:
				asked = append(asked, nodesAt(c, at%len(c.Workers))...)
			}
		}
		if name+id != "" {
			asked = append(asked, Node{Name: name, ProviderID: id})
		}
		for i := range c.Groups {
			before, leaving := newIndex(c).countMachines()
			g := c.Groups[i]
			changes, err := PlanDelete(c, g.ID, asked)
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
			if len(changes) > 1 || change.Pool != g.Name || change.Target >= g.Target && change.ClearFailed == 0 ||
				change.Target > g.Target || change.Target < 0 ||
				change.ClearFailed < 0 || int(change.ClearFailed) > g.failedCount() {
				t.Fatalf("%+v of %+v", changes, g)
			}
			after := *c
			after.Groups = append([]Group(nil), c.Groups...)
			apply(&after, changes)
			now, left := newIndex(&after).countMachines()
			gone := 0
			for at := range left {
				if left[at] && !leaving[at] {
					gone++
				}
				if !left[at] && leaving[at] {
					t.Fatalf("the removal of worker %d is reverted", at)
				}
			}
			for _, n := range asked {
				if at, ok := newIndex(c).worker(n); ok && !left[at] {
					t.Fatalf("worker %d remains after %+v", at, changes)
				}
			}
			if gone == 0 {
				continue
			}
			if now[i].remaining < int(g.Min) || now[i].remaining != before[i].remaining-gone {
				t.Fatalf("%d of %d machines remain, %d are removed, minSize is %d", now[i].remaining,
					before[i].remaining, gone, g.Min)
			}
			for at := len(left) - 1; at >= 0 && gone > 0; at-- {
				if !left[at] {
					t.Fatalf("worker %d remains although one before it is removed", at)
				}
				if !leaving[at] {
					gone--
				}
			}
			again, err := PlanDelete(&after, g.ID, asked)
			if err == nil && len(again) > 0 && again[0].Target+again[0].ClearFailed < after.Groups[i].Target {
				t.Fatalf("deleted twice: %+v then %+v", changes, again)
			}
		}
	})
}

// fuzzedCluster returns a cluster with one worker per letter of array: s and b are workers of the
// pools small and big, S and B those that have not joined, d is a worker of small being deleted.
func fuzzedCluster(array string, minSizes, failed, more byte) *Cluster {
	if len(array) > 64 {
		array = array[:64]
	}
	var all []Worker
	count := map[string]int32{}
	for i, letter := range []byte(array) {
		w := joinedWorker(i, "")
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
	c := newCluster(count["small"]+int32(failed%4)+int32(more%2), count["big"]+int32(more/2%2), all...)
	c.Mode = clusterv1.ScalingAuto
	c.Groups[0].Min, c.Groups[1].Min = int32(minSizes%4), int32(minSizes/4%4)
	if failed%4 > 0 {
		c.Groups[0].Failure = &Failure{Code: "x", Count: int32(failed % 4)}
	}
	return c
}
