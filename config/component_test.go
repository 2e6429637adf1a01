package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/ksctl/gitops/internal/manager"
)

// isComponent reports whether a kustomization.yaml is a Component, which only builds as a part of
// another kustomization.
func isComponent(t *testing.T, file string) bool {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(content), "\nkind: Component\n")
}

// withComponent returns a folder with a kustomization of config/default and a component, as a user
// would write it.
func withComponent(t *testing.T, name string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var lines []string
	for field, folder := range map[string]string{"resources": "default", "components": name} {
		path, err := filepath.Rel(dir, filepath.Join(here, folder))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s: [%s]", field, path))
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(strings.Join(lines, "\n")+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The component opens the port at which the controller listens for webhooks. Without the component,
// the controller does not listen.
func TestWebhookComponentOpensPort(t *testing.T) {
	listens := func(d *appsv1.Deployment) string {
		var o manager.Options
		flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		o.BindFlags(flags)
		if err := flags.Parse(d.Spec.Template.Spec.Containers[0].Args); err != nil {
			t.Fatal(err)
		}
		return o.WebhookAddr
	}
	if addr := listens(deployment(t)); addr != "" {
		t.Errorf("config/default listens for webhooks at %s", addr)
	}
	var opened int
	for _, u := range build(t, withComponent(t, "webhook")) {
		switch {
		case u.GetKind() == "Deployment":
			d := into[appsv1.Deployment](t, u)
			if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
				return p.Name == "webhook" && fmt.Sprintf(":%d", p.ContainerPort) == listens(d)
			}) {
				t.Errorf("no port webhook for address %q", listens(d))
			}
			opened++
		case u.GetKind() == "Service" && u.GetName() == "ksctl-gitops-webhook":
			if p := into[corev1.Service](t, u).Spec.Ports[0]; p.TargetPort.String() != "webhook" || p.Port != 80 {
				t.Errorf("unexpected port of the Service: %+v", p)
			}
			opened++
		case u.GetKind() == "NetworkPolicy" && u.GetName() == "ksctl-gitops-webhook":
			if p := into[networkingv1.NetworkPolicy](t, u).Spec.Ingress[0].Ports[0]; p.Port.String() != "webhook" {
				t.Errorf("unexpected port of the NetworkPolicy: %+v", p)
			}
			opened++
		}
	}
	if opened != 3 {
		t.Errorf("found %d of 3 objects: Deployment, Service and NetworkPolicy", opened)
	}
}

// The component serves the REST endpoint at its port, with the mounted certificate.
func TestRESTComponentServesEndpoint(t *testing.T) {
	var found int
	for _, u := range build(t, withComponent(t, "rest")) {
		switch {
		case u.GetKind() == "Deployment":
			found++
			pod := into[appsv1.Deployment](t, u).Spec.Template.Spec
			var o manager.Options
			flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
			o.BindFlags(flags)
			if err := flags.Parse(pod.Containers[0].Args); err != nil {
				t.Fatal(err)
			}
			if err := o.Validate(); err != nil {
				t.Error(err)
			}
			if !slices.ContainsFunc(pod.Containers[0].Ports, func(p corev1.ContainerPort) bool {
				return p.Name == "rest" && fmt.Sprintf(":%d", p.ContainerPort) == o.REST.Addr
			}) {
				t.Errorf("no port rest for address %q", o.REST.Addr)
			}
			for _, m := range pod.Containers[0].VolumeMounts {
				if m.Name == "rest-certificate" && m.MountPath+"/tls.crt" == o.REST.CertFile &&
					m.MountPath+"/tls.key" == o.REST.KeyFile {
					found++
				}
			}
		case u.GetName() != "ksctl-gitops-rest":
		case u.GetKind() == "Service":
			found++
			if p := into[corev1.Service](t, u).Spec.Ports[0]; p.TargetPort.String() != "rest" || p.Port != 443 {
				t.Errorf("unexpected port of the Service: %+v", p)
			}
		case u.GetKind() == "NetworkPolicy":
			found++
			if p := into[networkingv1.NetworkPolicy](t, u).Spec.Ingress[0].Ports[0]; p.Port.String() != "rest" {
				t.Errorf("unexpected port of the NetworkPolicy: %+v", p)
			}
		}
	}
	if found != 4 {
		t.Errorf("found %d of 4: Deployment, mounted certificate, Service and NetworkPolicy", found)
	}
}

// The values of rest are the flags of the endpoint.
func TestChartServesREST(t *testing.T) {
	d := into[appsv1.Deployment](t, rendered(t, "ksctl-gitops", map[string]any{"rest": map[string]any{"enabled": true,
		"certificateSecret": "rest-tls", "git": map[string]any{"source": "KsctlSource/a/b", "branch": "main",
			"path": "x", "secret": "a/push"}}})["Deployment ksctl-gitops"])
	pod := d.Spec.Template.Spec
	var o manager.Options
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	o.BindFlags(flags)
	if err := flags.Parse(pod.Containers[0].Args); err != nil {
		t.Fatal(err)
	}
	if want := (manager.RESTOptions{Addr: ":9543", CertFile: "/rest/tls.crt", KeyFile: "/rest/tls.key",
		GitSource: "KsctlSource/a/b", GitBranch: "main", GitPath: "x", GitSecret: "a/push"}); o.REST != want {
		t.Errorf("got %+v", o.REST)
	}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil && v.Secret.SecretName == "rest-tls"
	}) {
		t.Errorf("the certificate is not mounted: %+v", pod.Volumes)
	}
}
