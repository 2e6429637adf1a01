package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/config/argocd"
	"github.com/ksctl/gitops/internal/kindclient"
	"github.com/ksctl/gitops/stacks"
)

func newKindCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kind",
		Short: "Print the CustomResourceDefinition of a stack's kind, or generate clients of the kind",
		Long: `Print what other programs need of the kind that a stack serves: its CustomResourceDefinition, its OpenAPI
schemas, a Go package, or its health check for Argo CD. STACK is a stack.yaml, or the folder with it.`,
	}
	cmd.AddCommand(newKindCRDCommand(), newKindOpenAPICommand(), newKindClientCommand(), newKindArgoCDCommand())
	return cmd
}

func newKindCRDCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "crd STACK",
		Short: "Print the CustomResourceDefinition of a kind",
		Long: `Print the CustomResourceDefinition that a KsctlKind creates for a stack, for editors and for tools that check
objects without a cluster. Do not apply it: a KsctlKind never changes a CustomResourceDefinition that it did not create.`,
		Example: "  kubectl ksctl kind crd stacks/shop > schemas/shops.shops.example.com.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := loadKind(args[0])
			if err != nil {
				return err
			}
			crd, err := k.Definition()
			if err != nil {
				return err
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
			if err != nil {
				return err
			}
			delete(content, "status")
			unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
			return printYAML(cmd, content)
		},
	}
}

func newKindOpenAPICommand() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi STACK",
		Short: "Print the OpenAPI schemas of a kind",
		Long: `Print an OpenAPI 3.0 document with the schemas of a kind and of its lists, for generators of types in other
languages than Go.`,
		Example: "  kubectl ksctl kind openapi stacks/shop > shop.openapi.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := loadKind(args[0])
			if err != nil {
				return err
			}
			document, err := kindclient.OpenAPI(k)
			if err != nil {
				return err
			}
			return printYAML(cmd, document)
		},
	}
}

func newKindArgoCDCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "argocd STACK...",
		Short: "Print the health checks of kinds for Argo CD",
		Long: `Print the health checks of the kinds of one or more stacks for Argo CD, as keys of its argocd-cm. Without them,
Argo CD considers an object of the kind healthy as soon as it is applied.`,
		Example: "  kubectl ksctl kind argocd stacks/shop | " +
			"kubectl apply --server-side --field-manager ksctl-kinds --namespace argocd -f -",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys := map[string]string{}
			for _, stack := range args {
				k, err := loadKind(stack)
				if err != nil {
					return err
				}
				keys["resource.customizations.health."+k.Group+"_"+k.Kind] = argocd.Health
			}
			return printYAML(cmd, map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": "argocd-cm"}, "data": keys})
		},
	}
}

// loadKind reads the kind of a stack: a stack file, or the folder with it.
func loadKind(stack string) (*stacks.KindTemplate, error) {
	info, err := os.Stat(stack)
	if err != nil {
		return nil, err
	}
	file := stack
	if info.IsDir() {
		file = filepath.Join(stack, stacks.FileName)
	}
	if filepath.IsLocal(file) { // messages have the path from here
		return stacks.LoadKindFile(".", filepath.ToSlash(file))
	}
	return stacks.LoadKindFile(filepath.Dir(file), filepath.Base(file))
}

func printYAML(cmd *cobra.Command, value any) error {
	out, err := yaml.Marshal(value)
	if err == nil {
		_, err = cmd.OutOrStdout().Write(out)
	}
	return err
}
