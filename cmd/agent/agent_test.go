package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func parseFlags(t *testing.T, args ...string) *options {
	t.Helper()
	var o options
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.bindFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestValidateFlagCombinations(t *testing.T) {
	for args, want := range map[string]string{
		"--cluster-name=demo --plaintext":                            "",
		"--cluster-name=demo --tls-cert=a --tls-key=b --client-ca=c": "",
		"--clusters=file --plaintext":                                "",
		"--plaintext":                                                "--cluster-name or --clusters",
		"--cluster-name=demo":                                        "set --tls-cert and --tls-key",
		"--cluster-name=demo --tls-cert=a":                           "set --tls-cert and --tls-key",
		"--cluster-name=demo --plaintext --token-file=a":             "--plaintext can't be combined with",
		"--cluster-name=demo --plaintext --tls-cert=a --tls-key=b":   "--plaintext can't be combined with",
		"--cluster-name=demo --clusters=file --plaintext":            "can't be combined with --cluster-name",
	} {
		err := parseFlags(t, strings.Fields(args)...).validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestClusterFromKsctlEnvironment(t *testing.T) {
	t.Setenv("KSCTL_CLUSTER_NAME", "demo")
	t.Setenv("KSCTL_CLOUD", "azure")
	t.Setenv("KSCTL_REGION", "eastus")
	t.Setenv("KSCTL_K8S_DISTRO", "kubeadm")
	t.Setenv("KSCTL_CLUSTER_IS_HA", "true")
	clusters, err := parseFlags(t).loadClusters()
	if err != nil || len(clusters) != 1 {
		t.Fatalf("%v, %v", clusters, err)
	}
	if c := clusters[0]; c.Name != "demo" || c.Cloud != "azure" || c.Region != "eastus" ||
		c.Distribution != "kubeadm" || c.Type != "ha" {
		t.Errorf("%+v", c)
	}
}

func TestLoadClustersFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clusters.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("clusters:\n- name: one\n  cloud: aws\n- name: two\n  kubeconfig: /two\n" +
		"  provisioner: /bin/mine\n  provisionerArgs: [a, b]\n")
	clusters, err := parseFlags(t, "--clusters="+path, "--provisioner=kwok", "--kubeconfig=/k").loadClusters()
	if err != nil || len(clusters) != 2 || clusters[0].Cloud != "aws" || clusters[0].Type != "ha" ||
		clusters[0].Kubeconfig != "/k" {
		t.Fatalf("%+v, %v", clusters, err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{executable, "provision", "kwok", "--kubeconfig=/k"}, {"/bin/mine", "a", "b"}} {
		if got, err := clusters[i].provisionerCommand(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	if _, err := (clusterOptions{Provisioner: "terraform"}).provisionerCommand(); err == nil {
		t.Error("a provisioner that is neither built in nor a path is accepted")
	}
	write("clusters:\n- nam: one\n")
	if _, err := parseFlags(t, "--clusters="+path).loadClusters(); err == nil {
		t.Error("an unknown field is accepted")
	}
}

func TestNewLogger(t *testing.T) {
	for _, c := range [][2]string{{"info", "json"}, {"debug", "text"}} {
		if log, err := newLogger(c[0], c[1]); err != nil || log.GetSink() == nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, c := range [][2]string{{"loud", "json"}, {"info", "xml"}} {
		if _, err := newLogger(c[0], c[1]); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
}

// The arguments and ports of the shipped Deployments match the flags of this program.
func TestShippedDeploymentsMatchFlags(t *testing.T) {
	for path, provisioner := range map[string]string{"../../config/agent": "ksctl", "../../config/agent-kwok": "kwok"} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range built.Resources() {
			if r.GetNamespace() != "ksctl" && r.GetKind() != "Namespace" && !strings.HasPrefix(r.GetKind(), "Cluster") {
				t.Errorf("%s %s is in namespace %q", r.GetKind(), r.GetName(), r.GetNamespace())
			}
			if r.GetKind() != "Deployment" {
				continue
			}
			n++
			content, err := r.Map()
			if err != nil {
				t.Fatal(err)
			}
			var d appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, &d,
				true); err != nil {
				t.Fatal(err)
			}
			c := d.Spec.Template.Spec.Containers[0]
			if !slices.Equal(c.Command, []string{"/agent"}) || c.Args[0] != "serve" {
				t.Errorf("%s: %v %v", path, c.Command, c.Args)
			}
			o := parseFlags(t, append(c.Args[1:], "--cluster-name=demo")...)
			if err := o.validate(); err != nil || o.cluster.Provisioner != provisioner {
				t.Errorf("%s: %v, %s", path, err, o.cluster.Provisioner)
			}
			for name, addr := range map[string]string{"grpc": o.listen, "metrics": o.metrics, "health": o.health} {
				if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
					return p.Name == name && addr == fmt.Sprintf(":%d", p.ContainerPort)
				}) {
					t.Errorf("%s: no port %s at %s", path, name, addr)
				}
			}
		}
		if n != 1 {
			t.Errorf("%s: %d Deployments", path, n)
		}
	}
}
