package autoscaler

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

const (
	// healthInterval is how often Cluster Autoscaler's word is read at most.
	healthInterval = 20 * time.Second
	// staleProbe is how old it may be, and how long ago it may have asked: Cluster Autoscaler ends
	// itself after --max-inactivity, 10m.
	staleProbe = 15 * time.Minute
)

// probe is what Cluster Autoscaler says of itself, as its ConfigMap has it.
// https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/clusterstate/api/types.go
type probe struct {
	AutoscalerStatus string `json:"autoscalerStatus"`
	ClusterWide      struct {
		Health struct {
			Status        string      `json:"status"`
			LastProbeTime metav1.Time `json:"lastProbeTime"`
		} `json:"health"`
	} `json:"clusterWide"`
}

// health is what Cluster Autoscaler says of itself; nil: it is well, or has said nothing.
func (s *Steps) health(ctx context.Context, obj *clusterv1.KsctlAutoScaler, seen *sight) error {
	key, now := client.ObjectKeyFromObject(obj), s.Clock.Now()
	said, due := s.board.lastProbe(key, now)
	if due {
		var have corev1.ConfigMap
		found, err := engine.Read(ctx, seen.client, corev1.SchemeGroupVersion.WithResource("configmaps"), settings.Namespace, settings.StatusConfigMap, &have)
		if err != nil {
			return reconcile.TryAgain(AutoscalerUnhealthyReason, "reading what Cluster Autoscaler says of itself, ConfigMap %s/%s of the cluster: %w", settings.Namespace, settings.StatusConfigMap, err)
		}
		said = nil
		if found {
			said = readProbe(have.Data["status"])
		}
		s.board.keepProbe(key, said, now)
	}
	if said == nil {
		return nil
	}
	at := said.ClusterWide.Health.LastProbeTime
	if !at.IsZero() {
		minute := metav1.NewTime(at.Truncate(time.Minute)) // not a write for each time that it is read
		obj.Status.Autoscaler.LastProbeTime = &minute
	}
	switch status := said.ClusterWide.Health.Status; {
	case !at.IsZero() && now.Sub(at.Time) > staleProbe:
		return reconcile.Wait(AutoscalerUnhealthyReason, "Cluster Autoscaler has said nothing of itself since %s: see its log", at.UTC().Format(time.RFC3339))
	case status != "" && status != "Healthy":
		return reconcile.Wait(AutoscalerUnhealthyReason, "Cluster Autoscaler says that the cluster is %s: see ConfigMap %s/%s of the cluster", clip(status), settings.Namespace, settings.StatusConfigMap)
	}
	return nil
}

// silentAfter is how long Cluster Autoscaler may ask for nothing. It asks once in each of its loops.
func silentAfter(spec *clusterv1.KsctlAutoScalerSpec) time.Duration {
	if spec.ScaleUp == nil || spec.ScaleUp.ScanInterval == nil {
		return staleProbe
	}
	return max(staleProbe, 2*spec.ScaleUp.ScanInterval.Duration)
}

// listen says that Cluster Autoscaler is not well where it asks for nothing: its Pod is ready for
// so long after each start, whether it reaches us or not. No event tells of that, but for the end of it.
func (s *Steps) listen(obj *clusterv1.KsctlAutoScaler, r *running) {
	key, now, ours := client.ObjectKeyFromObject(obj), s.Clock.Now(), settings.Installed(&obj.Spec)
	since := s.vigils.since(key, r, ours, now)
	if since.IsZero() {
		return
	}
	since = later(since, r.asked)
	if due := since.Add(silentAfter(&obj.Spec)); now.Before(due) {
		r.silent = due
		return
	}
	s.Published.Await(key)
	look := fmt.Sprintf("look at its log, and whether its Pod reaches %s (--nodegroup-adv-addr)", s.Provider.Address)
	if !ours {
		look = fmt.Sprintf("spec.autoscaler.install is false: look whether one of yours runs with status.autoscaler.flags, and reaches %s (--nodegroup-adv-addr)", s.Provider.Address)
	}
	r.healthy = reconcile.Wait(AutoscalerSilentReason, "Cluster Autoscaler has not asked since %s; %s", since.UTC().Format(time.RFC3339), look)
}

// vigils are since when Cluster Autoscalers should ask.
type vigils struct {
	mu    sync.Mutex
	byKey map[client.ObjectKey]vigil
}

type vigil struct {
	since time.Time
	// ours is true for one that is installed here.
	ours bool
}

// since is from when on one should ask, as far as this controller has seen: it was installed, and
// could be answered. Zero: it need not. One that is not ready now and then, as it is started again,
// is waited for all the same.
func (v *vigils) since(key client.ObjectKey, r *running, ours bool, now time.Time) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	x := v.byKey[key]
	if !r.wanted || x.ours != ours {
		x = vigil{ours: ours}
	}
	if r.wanted && r.installed == nil && x.since.IsZero() {
		x.since = now
	}
	if v.byKey == nil {
		v.byKey = map[client.ObjectKey]vigil{}
	}
	v.byKey[key] = x
	return x.since
}

func (v *vigils) forget(key client.ObjectKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byKey, key)
}

// readProbe reads the ConfigMap; nil: it is none of a release that is known.
func readProbe(text string) *probe {
	var p probe
	if err := yaml.Unmarshal([]byte(text), &p); err != nil || p.AutoscalerStatus == "" {
		return nil
	}
	return &p
}

// lastProbe is what was read last, and whether it is time to read it again.
func (b *board) lastProbe(key client.ObjectKey, now time.Time) (*probe, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.card(key)
	return c.probe, now.Sub(c.probed) >= healthInterval
}

func (b *board) keepProbe(key client.ObjectKey, p *probe, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.card(key)
	c.probe, c.probed = p, now
}
