package autoscaler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

const (
	// statusReadInterval is the minimum time between two reads of Cluster Autoscaler's status.
	statusReadInterval = 20 * time.Second
	// inactivityTimeout is the maximum age of this status, and of the last request of Cluster
	// Autoscaler. It is longer than --max-inactivity, 10m, after which Cluster Autoscaler exits.
	inactivityTimeout = 15 * time.Minute
)

// autoscalerStatus is the status of Cluster Autoscaler in its ConfigMap.
// https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/clusterstate/api/types.go
type autoscalerStatus struct {
	AutoscalerStatus string `json:"autoscalerStatus"`
	ClusterWide      struct {
		Health struct {
			Status        string      `json:"status"`
			LastProbeTime metav1.Time `json:"lastProbeTime"`
		} `json:"health"`
	} `json:"clusterWide"`
}

// checkHealth returns an error if Cluster Autoscaler reports in its ConfigMap that it is unhealthy,
// or has not updated its status for too long. It returns nil if there is no status.
func (s *Steps) checkHealth(ctx context.Context, obj *clusterv1.KsctlAutoScaler, seen *observation) error {
	e, now := s.state.entry(client.ObjectKeyFromObject(obj)), s.Clock.Now()
	if now.Sub(e.statusReadAt) >= statusReadInterval {
		var configMap corev1.ConfigMap
		found, err := engine.GetInto(ctx, seen.client, corev1.SchemeGroupVersion.WithResource("configmaps"),
			settings.Namespace, settings.StatusConfigMap, &configMap)
		if err != nil {
			return reconcile.NewTransientError(clusterv1.AutoscalerUnhealthyReason,
				"reading the status of Cluster Autoscaler in ConfigMap %s/%s of the cluster: %w", settings.Namespace,
				settings.StatusConfigMap, err)
		}
		e.status, e.statusReadAt = nil, now
		if found {
			e.status = parseStatus(configMap.Data["status"])
		}
	}
	if e.status == nil {
		return nil
	}
	health := &e.status.ClusterWide.Health
	at := health.LastProbeTime
	if !at.IsZero() {
		minute := metav1.NewTime(at.Truncate(time.Minute)) // limits the status writes to one a minute
		obj.Status.Autoscaler.LastProbeTime = &minute
	}
	switch status := health.Status; {
	case !at.IsZero() && now.Sub(at.Time) > inactivityTimeout:
		return reconcile.NewWaitingError(clusterv1.AutoscalerUnhealthyReason, waitForAutoscaler(obj),
			"Cluster Autoscaler has not updated its status since %s: see its log", at.UTC().Format(time.RFC3339))
	case status != "" && status != "Healthy":
		return reconcile.NewWaitingError(clusterv1.AutoscalerUnhealthyReason, waitForAutoscaler(obj),
			"Cluster Autoscaler reports the health of the cluster as %s: see ConfigMap %s/%s of the cluster",
			truncate(status), settings.Namespace, settings.StatusConfigMap)
	}
	return nil
}

// pollTimeout returns how long Cluster Autoscaler may send no request. It sends one in each loop.
func pollTimeout(spec *clusterv1.KsctlAutoScalerSpec) time.Duration {
	if spec.ScaleUp == nil || spec.ScaleUp.ScanInterval == nil {
		return inactivityTimeout
	}
	return max(inactivityTimeout, 2*spec.ScaleUp.ScanInterval.Duration)
}

// checkPolling sets healthErr if Cluster Autoscaler has not sent a request within pollTimeout:
// after each start its Pod is ready for that long even if it cannot reach the controller. Else it
// sets pollDeadline, because no event occurs when a request is missing. The next request enqueues
// the object.
func (s *Steps) checkPolling(obj *clusterv1.KsctlAutoScaler, r *autoscalerHealth) {
	key, now, managed := client.ObjectKeyFromObject(obj), s.Clock.Now(), settings.InstallRequested(&obj.Spec)
	since := s.state.entry(key).expectedSince(r, managed, now)
	if since.IsZero() {
		return
	}
	since = later(since, r.lastRequest)
	if due := since.Add(pollTimeout(&obj.Spec)); now.Before(due) {
		r.pollDeadline = due
		return
	}
	s.Published.WakeOnNextRequest(key)
	hint := fmt.Sprintf("see its log, and check that its Pod can reach %s (--nodegroup-adv-addr)",
		s.Certificates.Address)
	if !managed {
		hint = fmt.Sprintf("spec.autoscaler.install is false: check that your Cluster Autoscaler runs with "+
			"status.autoscaler.flags and can reach %s (--nodegroup-adv-addr)", s.Certificates.Address)
	}
	r.healthErr = reconcile.NewWaitingError(clusterv1.AutoscalerNotPollingReason, waitForAutoscaler(obj),
		"Cluster Autoscaler has not sent a request since %s; %s", since.UTC().Format(time.RFC3339), hint)
}

// expectedSince returns the time from which Cluster Autoscaler is expected to poll; zero if it is
// not. It is the time at which this controller first observed that it was installed and could be
// served. It does not change while Cluster Autoscaler is not ready at times, such as during a
// restart.
func (c *entry) expectedSince(r *autoscalerHealth, managed bool, now time.Time) time.Time {
	if !r.expected || c.managed != managed {
		c.pollingSince, c.managed = time.Time{}, managed
	}
	if r.expected && r.installErr == nil && c.pollingSince.IsZero() {
		c.pollingSince = now
	}
	return c.pollingSince
}

// parseStatus parses the status in the ConfigMap; nil if it does not have the format of a known
// release.
func parseStatus(text string) *autoscalerStatus {
	var p autoscalerStatus
	if err := yaml.Unmarshal([]byte(text), &p); err != nil || p.AutoscalerStatus == "" {
		return nil
	}
	return &p
}

// waitForAutoscaler returns the wait for a response of Cluster Autoscaler.
func waitForAutoscaler(obj *clusterv1.KsctlAutoScaler) appsv1.WaitReference {
	return appsv1.WaitReference{Type: appsv1.WaitResponse, Kind: "ClusterAutoscaler", Namespace: obj.Namespace,
		Name: obj.Name}
}
