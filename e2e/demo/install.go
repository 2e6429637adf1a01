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

const (
	// redraw is how often the picture is drawn when nothing happens.
	redraw = 100 * time.Millisecond
	// refresh is how often something is asked for that is not watched.
	refresh = 50 * time.Millisecond
)

// install applies the cluster's folder and follows the stack to Ready.
func (d *demo) install(ctx context.Context) error {
	ctx, cancel := within(ctx)
	defer cancel()
	var err error
	if d.plan, err = d.readPlan(ctx); err != nil {
		return err
	}
	revision, err := d.repository.revision(ctx)
	if err != nil {
		return err
	}
	d.act("INSTALL", fmt.Sprintf("kubectl apply --server-side -k %s", clusterPath))
	t := newTable(d.screen, d.plan)
	if err := d.kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(d.repository.clone, filepath.FromSlash(clusterPath))); err != nil {
		return err
	}
	in, _, err := d.follow(ctx, t, revision)
	if err != nil {
		return fmt.Errorf("the install does not become ready: %w", err)
	}
	waves := d.plan.Components[len(d.plan.Components)-1].Wave + 1
	d.summary = append(d.summary, fmt.Sprintf("%-10s %d objects in %d waves, ready after %s", "installed", entries(in), waves, seconds(time.Since(t.start))))
	return nil
}

// readPlan works out what the install will do, with the library that the
// controller uses.
func (d *demo) readPlan(ctx context.Context) (*stacks.Plan, error) {
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

// act begins a part of the demo.
func (d *demo) act(name, what string) {
	d.line("")
	d.line("%s  %s", d.bold(name), what)
}

// kubectl runs the kubectl of the control plane with settings of its own.
func (d *demo) kubectl(ctx context.Context, args ...string) error {
	dir := d.cluster.Dir()
	cmd := exec.CommandContext(ctx, d.cluster.Kubectl(), args...)
	cmd.Env = []string{"KUBECONFIG=" + d.cluster.Kubeconfig(), "KUBECACHEDIR=" + filepath.Join(dir, "kubectl"), "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	if output, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, output))
	}
	return nil
}

// follow shows the table until the install is ready at a revision. It returns
// the install, and when the source had the revision.
func (d *demo) follow(ctx context.Context, t *table, revision string) (in *appsv1.KsctlInstall, noticed time.Time, err error) {
	defer d.settle()
	last := "nothing was seen of it"
	err = d.watchInstall(ctx, func(now *appsv1.KsctlInstall) (bool, error) {
		src, err := d.getSource(ctx)
		if err != nil {
			return false, err
		}
		if a := src.Status.Artifact; noticed.IsZero() && a != nil && a.Revision == revision {
			noticed = time.Now()
		}
		in = now
		foot, done := d.state(src, in, revision)
		last = foot
		t.show(in, foot)
		return done, nil
	})
	if err != nil {
		return nil, noticed, fmt.Errorf("%w; last: %s", err, last)
	}
	t.end(d.green("Ready at " + short(revision)))
	return in, noticed, nil
}

// watchInstall calls show for every version of the install that there is from
// now on, and again after a while in which there was none, until show has seen
// enough or the install is gone.
func (d *demo) watchInstall(ctx context.Context, show func(*appsv1.KsctlInstall) (enough bool, err error)) error {
	w, err := d.client.Watch(ctx, &appsv1.KsctlInstallList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": installName})
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
				return fmt.Errorf("the watch of the install ended (open: %t): %v", ok, e.Object)
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

// state is how the install as a whole is doing, and whether that is as wanted.
func (d *demo) state(src *appsv1.KsctlSource, in *appsv1.KsctlInstall, revision string) (string, bool) {
	if a := src.Status.Artifact; a == nil || a.Revision != revision {
		text := "the source looks for " + short(revision)
		if c := apimeta.FindStatusCondition(src.Status.Conditions, appsv1.ReadyCondition); c != nil && c.Status == "False" {
			text = "the source: " + c.Message
		}
		return text, false
	}
	c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	switch {
	case c == nil:
		return "the source has " + short(revision), false
	case c.Status == "True" && in.Status.LastAppliedRevision == revision && in.Status.ObservedGeneration == in.Generation:
		return c.Message, true
	case in.Status.LastAttemptedRevision != revision:
		return "the source has " + short(revision), false
	case apimeta.IsStatusConditionTrue(in.Status.Conditions, appsv1.ReconcilingCondition):
		return "applying " + short(revision), false // the rows say more
	}
	return fmt.Sprintf("%s: %s", c.Reason, c.Message), false
}

func entries(in *appsv1.KsctlInstall) int {
	if in.Status.Inventory == nil {
		return 0
	}
	return len(in.Status.Inventory.Entries)
}
