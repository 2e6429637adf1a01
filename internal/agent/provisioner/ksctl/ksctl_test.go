package ksctl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

var demo = provisioner.Cluster{Name: "demo", Cloud: "aws", Type: "ha", Region: "us-east-1", Distribution: "k3s"}

// rig is a folder of states, and a program that plays ksctl.
type rig struct {
	*Provisioner
	state, calls string
	log          bytes.Buffer
}

func newRig(t *testing.T, doc string) *rig {
	t.Helper()
	folder := t.TempDir()
	program, err := filepath.Abs("testdata/ksctl")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{state: filepath.Join(folder, "aws", "ha", "demo us-east-1", "state.json"), calls: filepath.Join(folder, "calls")}
	r.Provisioner = &Provisioner{Program: program, States: folder, Add: "create-cluster {type}-{cloud} add-nodes",
		Remove: "delete-cluster {type}-{cloud} delete-nodes", Args: []string{"--yes"}, Log: &r.log}
	if err := os.MkdirAll(filepath.Dir(r.state), 0o750); err != nil {
		t.Fatal(err)
	}
	if doc != "" {
		if err := os.WriteFile(r.state, []byte(doc), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KSCTL_STATE", r.state)
	t.Setenv("KSCTL_CALLS", r.calls)
	return r
}

// called is what ksctl was called with.
func (r *rig) called(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(r.calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// doc is a state with workers of these names, "" for an empty place, and anything more.
func doc(names, more string) string {
	return `{"cluster_type":"ha","region":"us-east-1","cluster_name":"demo","cloud_provider":"aws","bootstrap_provider":"k3s",` + more +
		`"cloud_infrastructure_state":{"aws":{"info_worker_planes":{"names":[` + names + `],"vm_sizes":["t3.medium","t3.large"]}}}}`
}

const two = `"demo-vm-wp-0","demo-vm-wp-1"`

func TestListIsWhatTheStateSays(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		want []provisioner.Worker
	}{
		"two":   {doc(two, ""), []provisioner.Worker{{Index: 0, Name: "demo-vm-wp-0", Size: "t3.medium"}, {Index: 1, Name: "demo-vm-wp-1", Size: "t3.large"}}},
		"a gap": {doc(`"","demo-vm-wp-1"`, ""), []provisioner.Worker{{Index: 1, Name: "demo-vm-wp-1", Size: "t3.large"}}},
		"none":  {doc("", ""), []provisioner.Worker{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.doc)
			got, err := r.Run(t.Context(), provisioner.Request{Operation: provisioner.List, Cluster: demo})
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
			if called := r.called(t); called != "" {
				t.Errorf("ksctl was called: %s", called)
			}
		})
	}
}

func TestWhatKsctlIsCalledWith(t *testing.T) {
	create := func(from, desired uint32) provisioner.Request {
		return provisioner.Request{Operation: provisioner.Create, Cluster: demo, From: from, Desired: desired, Size: "t3.medium"}
	}
	remove := func(from, desired uint32) provisioner.Request {
		return provisioner.Request{Operation: provisioner.Delete, Cluster: demo, From: from, Desired: desired}
	}
	other := demo
	other.Region = "-rf"
	for name, c := range map[string]struct {
		doc     string
		request provisioner.Request
		want    string
		code    string
		workers int
	}{
		"up":                              {doc: doc(two, ""), request: create(2, 4), want: "create-cluster ha-aws add-nodes -n demo -r us-east-1 -s store-local --noWP 4 --bootstrap k3s --nodeSizeWP t3.medium --yes", workers: 4},
		"down":                            {doc: doc(two, ""), request: remove(2, 1), want: "delete-cluster ha-aws delete-nodes -n demo -r us-east-1 -s store-local --noWP 1 --bootstrap k3s --yes", workers: 1},
		"up, and it was done":             {doc: doc(two, ""), request: create(1, 2), workers: 2},
		"down, and it was done":           {doc: doc(two, ""), request: remove(3, 2), workers: 2},
		"up to less":                      {doc: doc(two, ""), request: create(0, 1), code: "HasMoved"},
		"up from elsewhere":               {doc: doc(two, ""), request: create(1, 3), code: "HasMoved"},
		"up with a gap":                   {doc: doc(`"","demo-vm-wp-1"`, ""), request: create(0, 3), code: "HasGaps"},
		"up with a gap at the end":        {doc: doc(two+`,"",""`, ""), request: create(2, 3), code: "HasGaps"},
		"a gap at the end fills no place": {doc: doc(two+`,""`, ""), request: create(2, 3), code: "HasGaps"},
		"down with a gap at the end":      {doc: doc(two+`,""`, ""), request: remove(2, 1), code: "HasGaps"},
		"down to before a gap":            {doc: doc(`"demo-vm-wp-0","","demo-vm-wp-2"`, ""), request: remove(3, 1), code: "HasGaps"},
		"down to behind a gap":            {doc: doc(`"demo-vm-wp-0","","demo-vm-wp-2"`, ""), request: remove(3, 2), want: "delete-cluster ha-aws delete-nodes -n demo -r us-east-1 -s store-local --noWP 2 --bootstrap k3s --yes", workers: 2},
		"down to where there is nothing":  {doc: doc(two+`,""`, ""), request: remove(3, 3), workers: 2},
		"down with one that has no host":  {doc: strings.Replace(doc(two, ""), `"names"`, `"hostnames":["demo-vm-wp-0",""],"names"`, 1), request: remove(2, 1), code: "HasGaps"},
		"ksctl is at work":                {doc: doc(two, `"platform":{"state":"configuring"},`), request: create(2, 3), code: "Busy"},
		"no state":                        {request: create(2, 3), code: "NoState"},
		"another's state":                 {doc: strings.Replace(doc(two, ""), `"demo"`, `"other"`, 1), request: create(2, 3), code: "NoState"},
		"a region like a flag":            {doc: doc(two, ""), request: provisioner.Request{Operation: provisioner.List, Cluster: other}, code: "BadCluster"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.doc)
			_, err := r.Run(t.Context(), c.request)
			if got := r.called(t); got != c.want {
				t.Errorf("ksctl was called with %q, want %q", got, c.want)
			}
			if c.code != "" {
				e, ok := errors.AsType[*provisioner.Error](err)
				if !ok || e.Code != c.code || e.Class != provisioner.Other {
					t.Fatalf("error %v, want code %s", err, c.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			workers, err := r.Run(t.Context(), provisioner.Request{Operation: provisioner.List, Cluster: demo})
			if err != nil || len(workers) != c.workers {
				t.Errorf("workers %v, %v; want %d", workers, err, c.workers)
			}
		})
	}
}

// TestGapsSayWhatToDo has what people are told be safe: ksctl takes the first Node for one without a name.
func TestGapsSayWhatToDo(t *testing.T) {
	for names, want := range map[string]string{
		two + `,"",""`: "4 places for 2 workers, and ksctl fills no empty ones: cut its arrays to 2, as config/agent/README.md says of HasGaps; don't have ksctl delete empty places",
		`"","demo-vm-wp-1","","demo-vm-wp-3","demo-vm-wp-4"`: "5 places for 3 workers, and ksctl fills no empty ones: have ksctl delete the workers behind (--noWP 3), then see HasGaps",
		`"demo-vm-wp-0","","demo-vm-wp-2",""`:                "4 places for 2 workers, and ksctl fills no empty ones: cut its arrays to 3",
		`""`:                                                 "2 places for 0 workers, and ksctl fills no empty ones: cut its arrays to 0",
	} {
		r := newRig(t, doc(names, ""))
		_, err := r.Run(t.Context(), provisioner.Request{Operation: provisioner.Create, Cluster: demo, Desired: 9, Size: "t3.medium"})
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 256 {
			t.Errorf("%s: %v", names, err)
		}
	}
}

func TestWhenKsctlFails(t *testing.T) {
	up := provisioner.Request{Operation: provisioner.Create, Cluster: demo, From: 2, Desired: 3, Size: "t3.medium"}
	t.Run("with a status", func(t *testing.T) {
		r := newRig(t, doc(two, ""))
		t.Setenv("KSCTL_FAILS", "3")
		_, err := r.Run(t.Context(), up)
		if e, ok := errors.AsType[*provisioner.Error](err); !ok || e.Code != "KsctlFailed" || e.Class != provisioner.Other || !strings.Contains(e.Message, "status 3") {
			t.Errorf("error %v", err)
		}
		if !strings.Contains(r.log.String(), "ksctl says something") {
			t.Errorf("log %q", r.log.String())
		}
	})
	t.Run("to start", func(t *testing.T) {
		r := newRig(t, doc(two, ""))
		r.Program = filepath.Join(t.TempDir(), "none")
		_, err := r.Run(t.Context(), up)
		if e, ok := errors.AsType[*provisioner.Error](err); !ok || e.Code != "NotStarted" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("to end", func(t *testing.T) {
		r := newRig(t, doc(two, ""))
		t.Setenv("KSCTL_HANGS", "1")
		ctx, cancel := context.WithCancel(t.Context())
		r.Log = writer(func([]byte) { cancel() }) // it says something before it hangs
		_, err := r.Run(ctx, up)
		if e, ok := errors.AsType[*provisioner.Error](err); !ok || e.Code != "Interrupted" {
			t.Errorf("error %v", err)
		}
	})
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
