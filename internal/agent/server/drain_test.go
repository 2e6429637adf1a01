package server

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

const lastNode = "demo-vm-wp-1-00002"

func owned(kind string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", UID: "x",
			Controller: &yes}}
	}
}

func phase(of corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = of } }

func mirror(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
}

func TestDrainEvictsMovablePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(2, pod("web", lastNode, owned("ReplicaSet")), pod("bare", lastNode),
			pod("log", lastNode, owned("DaemonSet")),
			pod("static", lastNode, mirror), pod("ended", lastNode, phase(corev1.PodSucceeded)),
			pod("broken", lastNode, phase(corev1.PodFailed)),
			pod("elsewhere", "demo-vm-wp-0-00001"))
		evicted := fakeEvictions(c, nil)
		r := start(t, c, &memoryStore{})
		if got := r.execute(t, "a", 2, 1); got.State != succeeded {
			t.Errorf("%+v", got)
		}
		if got := evicted(); !slices.Equal(got, []string{"bare", "web"}) {
			t.Errorf("evicted %v", got)
		}
		if got := r.nodes(t); got != "demo-vm-wp-0-00001" {
			t.Errorf("nodes %s", got)
		}
	})
}

func TestDrainBlockedByDisruptionBudget(t *testing.T) {
	for name, c := range map[string]struct {
		// blocked is how long the budget blocks the eviction.
		blocked                 time.Duration
		force, cordoned         bool
		state, failure, message string
		nodes, did              string
	}{
		"temporarily": {blocked: 3 * time.Minute, state: succeeded, nodes: "demo-vm-wp-0-00001",
			did: "Delete 2 1 medium"},
		"forever": {blocked: time.Hour, state: failed, failure: "DRAIN", nodes: "demo-vm-wp-0-00001 demo-vm-wp-1-00002",
			message: "node demo-vm-wp-1-00002 could not be drained within 5m0s, and no machine was deleted: " +
				"apps/web: Cannot evict pod as it would violate the pod's disruption budget. (remaining pods: " +
				"apps/web)"},
		"forever, cordoned by another client": {blocked: time.Hour, cordoned: true, state: failed, failure: "DRAIN",
			nodes: "demo-vm-wp-0-00001 demo-vm-wp-1-00002!"},
		"forever, with force": {blocked: time.Hour, force: true, state: succeeded,
			nodes: "demo-vm-wp-0-00001", did: "Delete 2 1 medium"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newFakeCloud(2, pod("web", lastNode), pod("other", lastNode))
				if c.cordoned {
					if _, err := cl.client.CoreV1().Nodes().Patch(t.Context(), lastNode, "application/merge-patch+json",
						[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				fakeEvictions(cl, map[string]time.Time{"web": time.Now().Add(c.blocked)})
				r := start(t, cl, &memoryStore{}, func(o *Options) { o.ForceAfterDrain = c.force })
				began := time.Now()
				got := r.execute(t, "a", 2, 1)
				if got.State != c.state || got.Failure != c.failure || !strings.Contains(got.Message, c.message) {
					t.Errorf("%+v", got)
				}
				if took, least := time.Since(began), min(c.blocked, 5*time.Minute); took < least ||
					took > least+2*maxBackoff {
					t.Errorf("it took %s, want %s", took, least)
				}
				if got := r.nodes(t); got != c.nodes {
					t.Errorf("nodes %s, want %s", got, c.nodes)
				}
				if got := r.requests(); got != c.did {
					t.Errorf("did %q, want %q", got, c.did)
				}
			})
		})
	}
}

func TestBlockedDrainDeletesNoMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(3, pod("web", lastNode), pod("free", "demo-vm-wp-2-00003"))
		evicted := fakeEvictions(c, map[string]time.Time{"web": time.Now().Add(time.Hour)})
		r := start(t, c, &memoryStore{})
		if _, err := r.begin("a", 3, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := r.nodes(t); got != "demo-vm-wp-0-00001 demo-vm-wp-1-00002!? demo-vm-wp-2-00003!?" {
			t.Errorf("while draining: %s", got)
		}
		time.Sleep(time.Minute)
		if op := r.list(t).Operation; op.Message != "draining node demo-vm-wp-1-00002: remaining pods: 1" {
			t.Errorf("message %q", op.Message)
		}
		if got := r.execute(t, "a", 3, 1); got.Failure != "DRAIN" {
			t.Errorf("%+v", got)
		}
		if got := r.nodes(t); got != "demo-vm-wp-0-00001 demo-vm-wp-1-00002 demo-vm-wp-2-00003" {
			t.Errorf("afterwards: %s", got)
		}
		if got := evicted(); !slices.Equal(got, []string{"free"}) || r.requests() != "" {
			t.Errorf("evicted %v, did %s", got, r.requests())
		}
	})
}

func TestDrainResumesAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newFakeCloud(2, pod("web", lastNode)), &memoryStore{}
		fakeEvictions(c, map[string]time.Time{"web": time.Now().Add(2 * time.Minute)})
		r := start(t, c, store)
		if _, err := r.begin("a", 2, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.stop()
		if got := r.nodes(t); got != "demo-vm-wp-0-00001 demo-vm-wp-1-00002!?" {
			t.Errorf("after the interruption: %s", got)
		}
		again := start(t, c, store)
		if got := again.execute(t, "a", 2, 1); got.State != succeeded {
			t.Errorf("%+v", got)
		}
		if got := r.nodes(t); got != "demo-vm-wp-0-00001" || r.requests() != "Delete 2 1 medium" {
			t.Errorf("nodes %s, did %s", got, r.requests())
		}
	})
}

func TestForbiddenEvictionFailsOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(2, pod("web", lastNode))
		c.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods/eviction"), "web", errors.New("no rights"))
		})
		r := start(t, c, &memoryStore{})
		began := time.Now()
		if got := r.execute(t, "a", 2, 1); got.Failure != "OTHER" || !strings.Contains(got.Message, "no rights") ||
			time.Since(began) > time.Second {
			t.Errorf("%+v after %s", got, time.Since(began))
		}
		if got := r.nodes(t); got != "demo-vm-wp-0-00001 demo-vm-wp-1-00002" {
			t.Errorf("nodes %s", got)
		}
	})
}

// setNotReady sets the Ready condition of a node to Unknown.
func setNotReady(t *testing.T, c *fakeCloud, name string) {
	t.Helper()
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if _, err := c.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestTerminatingPodBlocksDrainUnlessNodeNotReady(t *testing.T) {
	for name, dead := range map[string]bool{"node is not ready": true, "node is ready": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The pod is terminating and has a grace period of 30 seconds.
				ends := metav1.NewTime(time.Now().Add(30 * time.Second))
				c := newFakeCloud(2, pod("web", lastNode, func(p *corev1.Pod) {
					p.DeletionTimestamp, p.Finalizers = &ends, []string{"kubelet"}
				}))
				if dead {
					setNotReady(t, c, lastNode)
				}
				r := start(t, c, &memoryStore{})
				began := time.Now()
				got := r.execute(t, "a", 2, 1)
				took := time.Since(began)
				if dead && (got.State != succeeded || took < 30*time.Second || took > time.Minute) {
					t.Errorf("%+v after %s", got, took)
				}
				if !dead && (got.Failure != "DRAIN" ||
					!strings.Contains(got.Message, "pods were evicted but have not terminated")) {
					t.Errorf("%+v after %s", got, took)
				}
			})
		})
	}
}

func TestDeleteWorkerWithoutNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(2)
		if err := c.client.CoreV1().Nodes().Delete(t.Context(), lastNode, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r := start(t, c, &memoryStore{})
		if got := r.execute(t, "a", 2, 1); got.State != succeeded {
			t.Errorf("%+v", got)
		}
	})
}
