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

// ksctlTest is a provisioner with a temporary directory of states and a fake ksctl.
type ksctlTest struct {
	*Provisioner
	state, calls string
	log          bytes.Buffer
}

func newKsctlTest(t *testing.T, doc string) *ksctlTest {
	t.Helper()
	folder := t.TempDir()
	program, err := filepath.Abs("testdata/ksctl")
	if err != nil {
		t.Fatal(err)
	}
	r := &ksctlTest{state: filepath.Join(folder, "aws", "ha", "demo us-east-1", "state.json"),
		calls: filepath.Join(folder, "calls")}
	r.Provisioner = &Provisioner{Program: program, StateDir: folder,
		AddCommand:    "create-cluster {type}-{cloud} add-nodes",
		DeleteCommand: "delete-cluster {type}-{cloud} delete-nodes", Args: []string{"--yes"}, Log: &r.log}
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

// calledWith returns the arguments of all ksctl calls, one call per line.
func (r *ksctlTest) calledWith(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(r.calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// stateJSON returns a state with workers of these names, where "" is an empty slot, and further
// fields.
func stateJSON(names, more string) string {
	return `{"cluster_type":"ha","region":"us-east-1","cluster_name":"demo","cloud_provider":"aws","bootstrap_provider":"k3s",` + more +
		`"cloud_infrastructure_state":{"aws":{"info_worker_planes":{"names":[` + names +
		`],"vm_sizes":["t3.medium","t3.large"]}}}}`
}

const two = `"demo-vm-wp-0","demo-vm-wp-1"`

func TestListReadsState(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		want []provisioner.Worker
	}{
		"two": {stateJSON(two, ""), []provisioner.Worker{{Index: 0, Name: "demo-vm-wp-0", Size: "t3.medium"},
			{Index: 1, Name: "demo-vm-wp-1", Size: "t3.large"}}},
		"a gap": {stateJSON(`"","demo-vm-wp-1"`, ""),
			[]provisioner.Worker{{Index: 1, Name: "demo-vm-wp-1", Size: "t3.large"}}},
		"none": {stateJSON("", ""), []provisioner.Worker{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newKsctlTest(t, c.doc)
			got, err := r.Run(t.Context(), provisioner.Request{Operation: provisioner.List, Cluster: demo})
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
			if called := r.calledWith(t); called != "" {
				t.Errorf("ksctl was called: %s", called)
			}
		})
	}
}

func TestCreateAndDeleteCommands(t *testing.T) {
	create := func(from, desired uint32) provisioner.Request {
		return provisioner.Request{Operation: provisioner.Create, Cluster: demo, From: from, Desired: desired,
			Size: "t3.medium"}
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
		"create": {doc: stateJSON(two, ""), request: create(2, 4),
			want: "create-cluster ha-aws add-nodes -n demo -r us-east-1 -s " +
				"store-local --noWP 4 --bootstrap k3s --nodeSizeWP t3.medium --yes", workers: 4},
		"delete": {doc: stateJSON(two, ""), request: remove(2, 1),
			want: "delete-cluster ha-aws delete-nodes -n demo -r " +
				"us-east-1 -s store-local --noWP 1 --bootstrap k3s --yes", workers: 1},
		"create is done already":    {doc: stateJSON(two, ""), request: create(1, 2), workers: 2},
		"delete is done already":    {doc: stateJSON(two, ""), request: remove(3, 2), workers: 2},
		"create fewer than exist":   {doc: stateJSON(two, ""), request: create(0, 1), code: "HasMoved"},
		"create from a wrong index": {doc: stateJSON(two, ""), request: create(1, 3), code: "HasMoved"},
		"create with a gap": {doc: stateJSON(`"","demo-vm-wp-1"`, ""), request: create(0, 3),
			code: "HasGaps"},
		"create with a gap at the end": {doc: stateJSON(two+`,"",""`, ""), request: create(2, 3), code: "HasGaps"},
		"create into a gap at the end": {doc: stateJSON(two+`,""`, ""), request: create(2, 3), code: "HasGaps"},
		"delete with a gap at the end": {doc: stateJSON(two+`,""`, ""), request: remove(2, 1), code: "HasGaps"},
		"delete across a gap": {doc: stateJSON(`"demo-vm-wp-0","","demo-vm-wp-2"`, ""), request: remove(3, 1),
			code: "HasGaps"},
		"delete after a gap": {doc: stateJSON(`"demo-vm-wp-0","","demo-vm-wp-2"`, ""), request: remove(3, 2),
			want: "delete-cluster ha-aws delete-nodes -n demo -r " +
				"us-east-1 -s store-local --noWP 2 --bootstrap k3s --yes", workers: 2},
		"delete nothing": {doc: stateJSON(two+`,""`, ""), request: remove(3, 3), workers: 2},
		"delete without a host name": {doc: strings.Replace(stateJSON(two, ""), `"names"`,
			`"hostnames":["demo-vm-wp-0",""],"names"`, 1), request: remove(2, 1), code: "HasGaps"},
		"ksctl is busy": {doc: stateJSON(two, `"platform":{"state":"configuring"},`),
			request: create(2, 3), code: "Busy"},
		"no state": {request: create(2, 3), code: "NoState"},
		"state of another cluster": {doc: strings.Replace(stateJSON(two, ""), `"demo"`, `"other"`, 1),
			request: create(2, 3), code: "NoState"},
		"region that looks like a flag": {doc: stateJSON(two, ""),
			request: provisioner.Request{Operation: provisioner.List, Cluster: other}, code: "BadCluster"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newKsctlTest(t, c.doc)
			_, err := r.Run(t.Context(), c.request)
			if got := r.calledWith(t); got != c.want {
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

// The advice must be safe: for a slot without a name ksctl deletes the first Node of the cluster.
func TestGapErrorAdvice(t *testing.T) {
	for names, want := range map[string]string{
		two + `,"",""`: "4 slots for 2 workers, and ksctl never fills empty slots: truncate its arrays to 2, see " +
			"HasGaps in config/agent/README.md; don't delete empty slots with ksctl",
		`"","demo-vm-wp-1","","demo-vm-wp-3","demo-vm-wp-4"`: "5 slots for 3 workers, and ksctl never fills empty " +
			"slots: delete the workers after the empty slot with ksctl (--noWP 3), then see HasGaps",
		`"demo-vm-wp-0","","demo-vm-wp-2",""`: "4 slots for 2 workers, and ksctl never fills empty " +
			"slots: truncate its arrays to 3",
		`""`: "2 slots for 0 workers, and ksctl never fills empty " +
			"slots: truncate its arrays to 0",
	} {
		r := newKsctlTest(t, stateJSON(names, ""))
		_, err := r.Run(t.Context(),
			provisioner.Request{Operation: provisioner.Create, Cluster: demo, Desired: 9, Size: "t3.medium"})
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 256 {
			t.Errorf("%s: %v", names, err)
		}
	}
}

func TestKsctlFailures(t *testing.T) {
	up := provisioner.Request{Operation: provisioner.Create, Cluster: demo, From: 2, Desired: 3, Size: "t3.medium"}
	t.Run("exit status", func(t *testing.T) {
		r := newKsctlTest(t, stateJSON(two, ""))
		t.Setenv("KSCTL_FAILS", "3")
		_, err := r.Run(t.Context(), up)
		if e, ok := errors.AsType[*provisioner.Error](err); !ok || e.Code != "KsctlFailed" ||
			e.Class != provisioner.Other || !strings.Contains(e.Message, "status 3") {
			t.Errorf("error %v", err)
		}
		if !strings.Contains(r.log.String(), "ksctl says something") {
			t.Errorf("log %q", r.log.String())
		}
	})
	t.Run("not started", func(t *testing.T) {
		r := newKsctlTest(t, stateJSON(two, ""))
		r.Program = filepath.Join(t.TempDir(), "none")
		_, err := r.Run(t.Context(), up)
		if e, ok := errors.AsType[*provisioner.Error](err); !ok || e.Code != "NotStarted" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		r := newKsctlTest(t, stateJSON(two, ""))
		t.Setenv("KSCTL_HANGS", "1")
		ctx, cancel := context.WithCancel(t.Context())
		r.Log = writerFunc(func([]byte) { cancel() }) // the fake ksctl writes a line before it hangs
		_, err := r.Run(ctx, up)
		if e, ok := errors.AsType[*provisioner.Error](err); !ok || e.Code != "Interrupted" {
			t.Errorf("error %v", err)
		}
	})
}

type writerFunc func([]byte)

func (w writerFunc) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
