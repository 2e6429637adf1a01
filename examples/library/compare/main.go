// Command compare uses the stack format as a library. It renders a stack for two installs, without
// a cluster and without a controller, and prints the differences between the objects. A bot that
// reviews changes could do the same for two revisions of one install.
//
//	go run ./compare ../standalone clusters/dev/install.yaml clusters/prod/install.yaml
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	if len(args) != 3 {
		return errors.New("expected three arguments: the folder of a repository, " +
			"and the files of two KsctlInstalls in it")
	}
	var installs [2]install
	for i := range installs {
		var err error
		if installs[i], err = render(ctx, args[0], args[i+1]); err != nil {
			return err
		}
	}
	for i := range installs {
		installs[i].describe(out)
	}
	return compare(out, &installs[0], &installs[1])
}

// install is a KsctlInstall with its rendered objects.
type install struct {
	file   string
	plan   *stacks.ResolvedStack
	result stacks.Result
}

// kubeVersion is the assumed Kubernetes version of the clusters. A controller gets it from the
// cluster.
const kubeVersion = "v1.34.0"

// render renders an install with the same steps as the controller: load the stack, resolve the
// choices of the install, render.
func render(ctx context.Context, root, file string) (install, error) {
	out := install{file: file}
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return out, err
	}
	var in appsv1.KsctlInstall
	if err := yaml.UnmarshalStrict(data, &in); err != nil {
		return out, fmt.Errorf("%s: %w", file, err)
	}
	choices, err := stacks.ChoicesFromInstall(&in, nil)
	if err != nil {
		return out, fmt.Errorf("%s: %w", file, err)
	}
	identity := stacks.Identity{Namespace: in.Namespace, Name: in.Name}

	def, err := stacks.Load(root, in.Spec.Path, in.Spec.Stack)
	if err != nil {
		return out, err
	}
	if out.plan, err = stacks.Resolve(ctx, def, identity, choices); err != nil {
		return out, fmt.Errorf("%s: %w", file, err)
	}
	out.result, err = stacks.Render(ctx, stacks.Request{
		Root: root, Path: in.Spec.Path, Stack: in.Spec.Stack, Install: identity, Choices: choices,
		Capabilities: stacks.Capabilities{KubeVersion: kubeVersion},
	})
	if err != nil {
		return out, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

// describe prints the components of the install in the order in which they are applied.
func (i *install) describe(out io.Writer) {
	fmt.Fprintf(out, "%s: %s %s\n", i.file, i.plan.Definition.Metadata.Name, i.result.StackVersion)
	for _, c := range i.result.Components {
		fmt.Fprintf(out, "  wave %d  %-8s %2d objects\n", c.Wave, c.Name, len(c.Objects))
	}
	for _, w := range i.result.Warnings {
		fmt.Fprintf(out, "  warning: %s\n", w)
	}
}
