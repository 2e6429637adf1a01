package main

import (
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// clusterFlags are the flags of commands that use a cluster.
type clusterFlags struct{ kubeconfig, context, namespace string }

func (f *clusterFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "path of the kubeconfig; as in kubectl when it is empty")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig; the current one when it is empty")
	flags.StringVarP(&f.namespace, "namespace", "n", "",
		"namespace of the install; that of the context when it is empty")
}

// client returns a client for the cluster of the flags, and the namespace.
func (f *clusterFlags) client() (client.Client, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	overrides.Context.Namespace = f.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", err
	}
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		return nil, "", err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, namespace, err
}
