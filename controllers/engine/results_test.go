package engine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLastTerminationMessage(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := func(seconds int, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Message: message, FinishedAt: metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))}}}
	}
	pod := func(containers ...corev1.ContainerStatus) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: containers}}
	}
	for name, tc := range map[string]struct {
		pods []corev1.Pod
		want string
	}{
		"no pods":             {nil, ""},
		"running":             {[]corev1.Pod{pod(corev1.ContainerStatus{})}, ""},
		"the last pod":        {[]corev1.Pod{pod(ended(1, "a")), pod(ended(3, "b")), pod(ended(2, "c"))}, "b"},
		"the last container":  {[]corev1.Pod{pod(ended(1, "a"), ended(3, "b"), ended(2, "c"))}, "b"},
		"a container without": {[]corev1.Pod{pod(ended(1, "a"), ended(3, ""))}, "a"},
		"a pod without":       {[]corev1.Pod{pod(ended(1, "a")), pod(ended(3, ""))}, ""},
		"one that still runs": {[]corev1.Pod{pod(ended(1, "a")), pod(corev1.ContainerStatus{})}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lastTerminationMessage(tc.pods); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRedactResult(t *testing.T) {
	mask := func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }
	got := redactResult(json.RawMessage(`{"message":"no hunter2","n":[1,"hunter2"]}`), mask)
	if got != `{"message":"no ***","n":[1,"***"]}` {
		t.Errorf("got %s", got)
	}
	if got := redactResult(nil, mask); got != "" {
		t.Errorf("without a result: %s", got)
	}
}
