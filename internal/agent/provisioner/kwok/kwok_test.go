package kwok

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

var demo = provisioner.Cluster{Name: "demo"}

func newProvisioner(t *testing.T, config string) *Provisioner {
	t.Helper()
	p := &Provisioner{Client: fake.NewClientset(), ConfigFile: filepath.Join(t.TempDir(), "knobs.json")}
	writeConfig(t, p, config)
	return p
}

// writeConfig writes the configuration file; "" removes it.
func writeConfig(t *testing.T, p *Provisioner, config string) {
	t.Helper()
	_ = os.Remove(p.ConfigFile)
	if config == "" {
		return
	}
	if err := os.WriteFile(p.ConfigFile, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

func create(from, desired uint32) provisioner.Request {
	return provisioner.Request{Operation: provisioner.Create, Cluster: demo, From: from, Desired: desired,
		Size: "medium"}
}

func remove(from, desired uint32) provisioner.Request {
	return provisioner.Request{Operation: provisioner.Delete, Cluster: demo, From: from, Desired: desired}
}

// indexes returns the indexes of all workers.
func indexes(t *testing.T, p *Provisioner) string {
	t.Helper()
	workers, err := p.Run(t.Context(), provisioner.Request{Operation: provisioner.List, Cluster: demo})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(workers))
	for i, w := range workers {
		out[i] = fmt.Sprint(w.Index)
	}
	return strings.Join(out, " ")
}

func TestCreateFillsGapsAndDeleteTruncates(t *testing.T) {
	p := newProvisioner(t, "")
	for _, step := range []struct {
		request provisioner.Request
		want    string
	}{
		{create(0, 3), "0 1 2"},
		{create(0, 3), "0 1 2"},
		{create(3, 12), "0 1 2 3 4 5 6 7 8 9 10 11"},
		{remove(12, 2), "0 1"},
		{remove(12, 2), "0 1"},
		{create(3, 4), "0 1 3"},
		{create(0, 4), "0 1 2 3"},
		{remove(4, 0), ""},
	} {
		if _, err := p.Run(t.Context(), step.request); err != nil {
			t.Fatal(err)
		}
		if got := indexes(t, p); got != step.want {
			t.Fatalf("after %+v: %q, want %q", step.request, got, step.want)
		}
	}
}

func TestForeignNodesAreIgnored(t *testing.T) {
	p := newProvisioner(t, "")
	for _, node := range []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "demo-vm-wp-0-abcde"}}, // not a node of this provisioner
		{ObjectMeta: metav1.ObjectMeta{Name: "demo-vm-cp-0-abcde", Labels: map[string]string{ClusterLabel: "demo"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other-vm-wp-0-abcde", Labels: map[string]string{ClusterLabel: "other"}}},
	} {
		if _, err := p.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := indexes(t, p); got != "" {
		t.Errorf("listed %s", got)
	}
	if _, err := p.Run(t.Context(), remove(9, 0)); err != nil {
		t.Fatal(err)
	}
	list, err := p.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 {
		t.Errorf("%d nodes, %v", len(list.Items), err)
	}
}

func TestNodeFields(t *testing.T) {
	for id, want := range map[string]string{"": "k3s://", `{"providerID":"none"}`: "",
		`{"providerID":"k3s"}`: "k3s://"} {
		p := newProvisioner(t, id)
		if _, err := p.Run(t.Context(), create(0, 1)); err != nil {
			t.Fatal(err)
		}
		list, err := p.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		n := list.Items[0]
		if want != "" {
			want += n.Name
		}
		if n.Spec.ProviderID != want || !regexp.MustCompile(`^demo-vm-wp-0-[a-z0-9]{5}$`).MatchString(n.Name) {
			t.Errorf("%s with provider ID %q, want %q", n.Name, n.Spec.ProviderID, want)
		}
		if n.Labels[corev1.LabelInstanceTypeStable] != "medium" || n.Labels[corev1.LabelHostname] != n.Name ||
			n.Labels["type"] != "kwok" || n.Annotations[kwokAnnotation] != "fake" {
			t.Errorf("labels %v, annotations %v", n.Labels, n.Annotations)
		}
		if n.Status.Capacity.Cpu().String() != "2" || n.Status.Allocatable.Cpu().String() != "1900m" ||
			n.Status.Allocatable.Pods().Value() != 110 {
			t.Errorf("%v of %v", n.Status.Allocatable, n.Status.Capacity)
		}
	}
}

func TestSizes(t *testing.T) {
	p := newProvisioner(t, `{"sizes":{"huge":{"cpu":"64","memory":"256Gi","pods":"250"}}}`)
	request := create(0, 1)
	request.Size = "huge"
	if _, err := p.Run(t.Context(), request); err != nil {
		t.Error(err)
	}
	request.Size, request.Desired = "hge", 2
	_, err := p.Run(t.Context(), request)
	if e, ok := errors.AsType[*provisioner.Error](err); !ok || e.Code != "UnknownSize" ||
		!strings.Contains(e.Message, "huge") {
		t.Errorf("error %v", err)
	}
}

func TestFaults(t *testing.T) {
	quota := `{"code":"Quota","class":"OutOfResources","message":"no more"}`
	for name, c := range map[string]struct {
		knobs   string
		request provisioner.Request
		want    string
		err     string
	}{
		"fail": {`{"create":{"fail":` + quota + `}}`, create(2, 4), "0 1", "Quota: no more"},
		"fail after one": {`{"create":{"after":1,"fail":` + quota + `}}`, create(2, 4), "0 1 2",
			"Quota: no more"},
		"fail after all": {`{"create":{"after":9,"fail":` + quota + `}}`, create(2, 4), "0 1 2 3",
			"Quota: no more"},
		"pretend":               {`{"create":{"pretend":true}}`, create(2, 4), "0 1", ""},
		"fault of another verb": {`{"delete":{"pretend":true}}`, create(2, 4), "0 1 2 3", ""},
		"delete fails":          {`{"delete":{"after":1,"fail":` + quota + `}}`, remove(2, 0), "0", "Quota: no more"},
		"delete pretends":       {`{"delete":{"pretend":true}}`, remove(2, 0), "0 1", ""},
		"delay":                 {`{"create":{"delay":"5s"}}`, create(2, 3), "0 1 2", ""},
		"delay, then fail": {`{"create":{"delay":"5s","fail":` + quota + `}}`, create(2, 3), "0 1",
			"Quota: no more"},
		"unknown field":       {`{"crate":{}}`, create(2, 3), "0 1", "unknown field"},
		"unknown provider ID": {`{"providerID":"aws"}`, create(2, 3), "0 1", "want k3s or none"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvisioner(t, "")
				if _, err := p.Run(t.Context(), create(0, 2)); err != nil {
					t.Fatal(err)
				}
				writeConfig(t, p, c.knobs)
				began := time.Now()
				_, err := p.Run(t.Context(), c.request)
				if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				if took := time.Since(began); (took == 5*time.Second) != strings.Contains(c.knobs, "delay") {
					t.Errorf("it took %s", took)
				}
				writeConfig(t, p, "")
				if got := indexes(t, p); got != c.want {
					t.Errorf("listed %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestListFaults(t *testing.T) {
	p := newProvisioner(t, `{"list":{"pretend":true}}`)
	if _, err := p.Run(t.Context(), create(0, 2)); err != nil {
		t.Fatal(err)
	}
	if got := indexes(t, p); got != "" {
		t.Errorf("listed %q", got)
	}
	writeConfig(t, p, `{"list":{"panic":true}}`)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("List did not panic")
			}
		}()
		indexes(t, p)
	}()
	writeConfig(t, p, `{"create":{"delay":"1h"}}`)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("it took too long")
	cancel(why)
	if _, err := p.Run(ctx, create(2, 3)); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

func TestMachinesWithoutANode(t *testing.T) {
	const alone = `{"noNode":true}`
	p := newProvisioner(t, alone)
	nodes := func(want int) {
		t.Helper()
		list, err := p.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != want {
			t.Errorf("%d nodes, %v; want %d", len(list.Items), err, want)
		}
	}
	for _, step := range []struct {
		knobs   string
		request provisioner.Request
		want    string
		nodes   int
	}{
		{"", create(0, 1), "0", 1},
		{alone, create(0, 3), "0 1 2", 1},
		{alone, create(0, 3), "0 1 2", 1},
		{alone, remove(3, 2), "0 1", 1},
		{"", create(0, 2), "0 1", 2}, // the machine joins late
		{alone, create(2, 3), "0 1 2", 2},
		{alone, remove(3, 0), "", 0},
	} {
		writeConfig(t, p, step.knobs)
		if _, err := p.Run(t.Context(), step.request); err != nil {
			t.Fatal(err)
		}
		if got := indexes(t, p); got != step.want {
			t.Fatalf("after %+v: %q, want %q", step.request, got, step.want)
		}
		nodes(step.nodes)
	}
}
