package stacks

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const mutatingWebhooks = "MutatingWebhookConfiguration"

var webhookKinds = map[schema.GroupKind]bool{
	{Group: "admissionregistration.k8s.io", Kind: mutatingWebhooks}:                 true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: true,
}

// workloadKinds are the kinds with Pods that run until they are deleted.
var workloadKinds = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "Deployment"}: true, {Group: "apps", Kind: "StatefulSet"}: true,
	{Group: "apps", Kind: "DaemonSet"}: true, {Group: "apps", Kind: "ReplicaSet"}: true,
	{Kind: "ReplicationController"}: true, {Kind: "Pod"}: true,
}

// webhookConfiguration has the fields of a webhook configuration that link it with workloads.
type webhookConfiguration struct {
	Webhooks []struct {
		ClientConfig struct {
			Service *struct{ Namespace, Name string }
		}
		ObjectSelector *metav1.LabelSelector
		Rules          []struct {
			APIGroups []string `json:"apiGroups"`
			Resources []string
		}
	}
}

// linkWebhooks sets AnsweredBy of the webhook configurations of one component.
func linkWebhooks(objects []Object) {
	for i := range objects {
		if o := &objects[i]; webhookKinds[o.GroupKind()] && o.Hook == nil {
			o.AnsweredBy = answering(o, objects)
		}
	}
}

// answering returns the ids of the workloads of a component whose Pods answer a webhook
// configuration. It returns none for a mutating one that has to change other Pods as soon as they
// are created, and that leaves the Pods of these workloads out. The API server answers to manifests
// that are invalid.
func answering(configuration *Object, objects []Object) (ids []string) {
	var c webhookConfiguration
	if json.Unmarshal(configuration.Manifest, &c) != nil {
		return nil
	}
	var podLabels []labels.Set
	for i := range c.Webhooks {
		service := c.Webhooks[i].ClientConfig.Service
		if service == nil {
			continue
		}
		selector := serviceSelector(service.Namespace, service.Name, objects)
		for j := range objects {
			o := &objects[j]
			if !workloadKinds[o.GroupKind()] || o.Namespace != service.Namespace || o.Hook != nil {
				continue
			}
			if pod := podLabelsOf(o); selector.Matches(pod) && !slices.Contains(ids, o.ID()) {
				ids, podLabels = append(ids, o.ID()), append(podLabels, pod)
			}
		}
	}
	if configuration.Kind == mutatingWebhooks && c.leavesOut(podLabels) {
		return nil
	}
	return ids
}

// serviceSelector returns the selector of a Service; that of no Pods if the component does not have
// the Service, or if the Service has none.
func serviceSelector(namespace, name string, objects []Object) labels.Selector {
	for i := range objects {
		o := &objects[i]
		if o.Group != "" || o.Kind != "Service" || o.Namespace != namespace || o.Name != name {
			continue
		}
		var service struct{ Spec struct{ Selector labels.Set } }
		if json.Unmarshal(o.Manifest, &service) == nil && len(service.Spec.Selector) > 0 {
			return service.Spec.Selector.AsSelector()
		}
	}
	return labels.Nothing()
}

// podLabelsOf returns the labels of the Pods of a workload.
func podLabelsOf(o *Object) labels.Set {
	type metadata struct{ Labels labels.Set }
	var workload struct {
		Metadata metadata
		Spec     struct{ Template struct{ Metadata metadata } }
	}
	if json.Unmarshal(o.Manifest, &workload) != nil {
		return nil
	}
	if o.Kind == "Pod" {
		return workload.Metadata.Labels
	}
	return workload.Spec.Template.Metadata.Labels
}

// leavesOut reports whether the configuration has webhooks for Pods, and none of them for Pods with
// these labels.
func (c *webhookConfiguration) leavesOut(pods []labels.Set) bool {
	forPods := false
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		matches := false
		for _, r := range w.Rules {
			matches = matches || containsAny(r.APIGroups, "", "*") && containsAny(r.Resources, "pods", "*", "*/*")
		}
		if !matches {
			continue
		}
		forPods = true
		selector := labels.Everything()
		if w.ObjectSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(w.ObjectSelector); err != nil {
				return false
			}
		}
		if slices.ContainsFunc(pods, func(pod labels.Set) bool { return selector.Matches(pod) }) {
			return false
		}
	}
	return forPods
}

func containsAny(list []string, values ...string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(values, s) })
}
