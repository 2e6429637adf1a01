package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// remove deletes the install and shows the removal of its objects, last wave first.
func (d *demo) remove(ctx context.Context) error {
	before, err := d.snapshot(ctx)
	if err != nil {
		return err
	}
	d.printHeading("REMOVE", fmt.Sprintf("kubectl -n %s delete ksctlinstall %s", namespace, installName))
	began, last := time.Now(), ""
	in, err := d.getInstall(ctx)
	if err != nil {
		return err
	}
	defer d.keepLive()
	deleted := false
	err = d.watchInstall(ctx, func(now *appsv1.KsctlInstall) (bool, error) {
		if !deleted { // deleted only after the start of the watch, so that the watch has the deletion
			deleted = true
			return false, d.client.Delete(ctx, in)
		}
		if now.DeletionTimestamp.IsZero() {
			return false, nil
		}
		text := d.remaining(now)
		d.draw(fmt.Sprintf("  %s  %s", d.bold(tenths(time.Since(began))), text))
		if !d.tty && text != last {
			d.line("  +%-6s %s", tenths(time.Since(began)), text)
		}
		last = text
		return false, nil
	})
	d.draw()
	if err != nil {
		return fmt.Errorf("waiting for the removal of the install: %w; %s", err, last)
	}
	took := time.Since(began)
	for _, u := range before {
		if err := d.client.Get(ctx, client.ObjectKeyFromObject(u), u); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s still exists after the removal of the install (%w)", u.GetKind(),
				client.ObjectKeyFromObject(u), err)
		}
	}
	d.line("  %s all %d objects, then the install, were removed after %s", d.green("✓"), len(before),
		d.bold(seconds(took)))
	d.summary = append(d.summary, fmt.Sprintf("%-10s %d objects in %s", "removed", len(before), seconds(took)))
	return nil
}

// remaining returns the number of remaining objects of each component.
func (d *demo) remaining(in *appsv1.KsctlInstall) string {
	left := map[string]int{}
	for _, e := range inventory(in) {
		left[e.Component]++
	}
	var parts []string
	for _, c := range d.plan.Components {
		parts = append(parts, fmt.Sprintf("%s %d", c.Component.Name, left[c.Component.Name]))
	}
	return "remaining: " + strings.Join(parts, ", ")
}
