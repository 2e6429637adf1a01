package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// redraw is the interval at which the table is redrawn without events.
const redraw = 100 * time.Millisecond

// install applies the cluster's folder and shows the progress of the install until it is Ready.
func (d *demo) install(ctx context.Context) error {
	var err error
	if d.plan, err = d.readPlan(ctx); err != nil {
		return err
	}
	revision, err := d.repository.revision(ctx)
	if err != nil {
		return err
	}
	d.printHeading("INSTALL", fmt.Sprintf("kubectl apply --server-side -k %s", clusterPath))
	t := newTable(d.screen, d.plan)
	if err := d.kubectl(ctx, "apply", "--server-side", "-k",
		filepath.Join(d.repository.clone, filepath.FromSlash(clusterPath))); err != nil {
		return err
	}
	in, _, err := d.follow(ctx, t, revision)
	if err != nil {
		return fmt.Errorf("waiting for the install to become ready: %w", err)
	}
	waves := d.plan.Components[len(d.plan.Components)-1].Wave + 1
	d.summary = append(d.summary, fmt.Sprintf("%-10s %d objects in %d waves, ready after %s", "installed",
		len(inventory(in)), waves, seconds(time.Since(t.start))))
	return nil
}

// readPlan computes the plan of the install with the library that the controller uses.
func (d *demo) readPlan(ctx context.Context) (*stacks.ResolvedStack, error) {
	data, err := os.ReadFile(filepath.Join(d.repository.clone, filepath.FromSlash(installFile)))
	if err != nil {
		return nil, err
	}
	var in appsv1.KsctlInstall
	if err := yaml.UnmarshalStrict(data, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", installFile, err)
	}
	choices, err := stacks.ChoicesFromInstall(&in, nil)
	if err != nil {
		return nil, err
	}
	def, err := stacks.Load(d.repository.clone, in.Spec.Path, in.Spec.Stack)
	if err != nil {
		return nil, err
	}
	return stacks.Resolve(ctx, def, stacks.Identity{Namespace: in.Namespace, Name: in.Name}, choices)
}

// printHeading prints the heading of a part of the demo.
func (d *demo) printHeading(name, what string) {
	d.line("")
	d.line("%s  %s", d.bold(name), what)
}

// kubectl runs the control plane's kubectl, without the user's configuration.
func (d *demo) kubectl(ctx context.Context, args ...string) error {
	dir := d.cluster.Dir()
	cmd := exec.CommandContext(ctx, d.cluster.Kubectl(), args...)
	cmd.Env = []string{"KUBECONFIG=" + d.cluster.Kubeconfig(), "KUBECACHEDIR=" + filepath.Join(dir, "kubectl"),
		"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	if output, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, output))
	}
	return nil
}

// follow shows the table until the install is ready at a revision. It returns the install, and the
// time at which the source had fetched the revision.
func (d *demo) follow(ctx context.Context, t *table,
	revision string) (in *appsv1.KsctlInstall, fetched time.Time, err error) {
	defer d.keepLive()
	last := "no event received"
	err = d.watchInstall(ctx, func(now *appsv1.KsctlInstall) (bool, error) {
		src, err := d.getSource(ctx)
		if err != nil {
			return false, err
		}
		if a := src.Status.Artifact; fetched.IsZero() && a != nil && a.Revision == revision {
			fetched = time.Now()
		}
		in = now
		foot, done := d.state(src, in, revision)
		last = foot
		t.show(in, foot)
		return done, nil
	})
	if err != nil {
		return nil, fetched, fmt.Errorf("%w; last state: %s", err, last)
	}
	t.end(d.green("Ready at " + short(revision)))
	return in, fetched, nil
}

// watchInstall calls show for every new version of the install, and every [redraw] with the last
// version. It returns when show returns true or an error, or the install is deleted.
func (d *demo) watchInstall(ctx context.Context, show func(*appsv1.KsctlInstall) (enough bool, err error)) error {
	w, err := d.client.Watch(ctx, &appsv1.KsctlInstallList{}, client.InNamespace(namespace),
		client.MatchingFields{"metadata.name": installName})
	if err != nil {
		return err
	}
	defer w.Stop()
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	in := &appsv1.KsctlInstall{}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case e, ok := <-w.ResultChan():
			switch o := e.Object.(type) {
			case *appsv1.KsctlInstall:
				in = o
			default:
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return fmt.Errorf("watching the install: the watch ended (channel open: %t): %v", ok, e.Object)
			}
			if e.Type == watch.Deleted {
				return nil
			}
		}
		if enough, err := show(in); err != nil || enough {
			return err
		}
	}
}

// state returns a description of the install's state, and true if it is ready at the revision.
func (d *demo) state(src *appsv1.KsctlSource, in *appsv1.KsctlInstall, revision string) (string, bool) {
	if a := src.Status.Artifact; a == nil || a.Revision != revision {
		text := "waiting for the source to fetch " + short(revision)
		if c := apimeta.FindStatusCondition(src.Status.Conditions, appsv1.ReadyCondition); c != nil &&
			c.Status == "False" {
			text = "the source is not ready: " + c.Message
		}
		return text, false
	}
	c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	switch {
	case c == nil:
		return "the source fetched " + short(revision), false
	case c.Status == "True" && in.Status.LastAppliedRevision == revision &&
		in.Status.ObservedGeneration == in.Generation:
		return c.Message, true
	case in.Status.LastAttemptedRevision != revision:
		return "the source fetched " + short(revision), false
	case apimeta.IsStatusConditionTrue(in.Status.Conditions, appsv1.ReconcilingCondition):
		return "applying " + short(revision), false // the table's rows have the details
	}
	return fmt.Sprintf("%s: %s", c.Reason, c.Message), false
}

func inventory(in *appsv1.KsctlInstall) []appsv1.InventoryEntry {
	if in.Status.Inventory == nil {
		return nil
	}
	return in.Status.Inventory.Entries
}
