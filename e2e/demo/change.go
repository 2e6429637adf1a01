package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ksctl/gitops/e2e/cluster"
)

// change pushes a new version of the stack and shows which objects it changed.
func (d *demo) change(ctx context.Context) error {
	before, err := d.snapshot(ctx)
	if err != nil {
		return err
	}
	mark, err := d.cluster.AuditMark(ctx)
	if err != nil {
		return err
	}
	revision, diff, err := d.repository.push(ctx, "shop 1.1.0: announce the sale",
		edit{"stacks/shop/stack.yaml", "version: 1.0.0", "version: 1.1.0"},
		edit{"stacks/shop/web/frontend.yaml", "Welcome to the shop", "Everything must go"})
	if err != nil {
		return err
	}
	t := newTable(d.screen, d.plan)
	d.printHeading("CHANGE", "git push")
	for _, l := range diff {
		d.line("  %s", d.diffLine(l))
	}
	_, fetched, err := d.follow(ctx, t, revision)
	if err != nil {
		return fmt.Errorf("waiting for the install to apply the push: %w", err)
	}
	took := time.Since(t.start)
	after, err := d.snapshot(ctx)
	if err != nil {
		return err
	}
	requests, err := d.cluster.AuditSince(ctx, mark)
	if err != nil {
		return err
	}
	// such as a conflict with a status update
	writes := requests.Where(cluster.ByEffectiveUser(cluster.ServiceAccountUser(namespace, deployerAccount)),
		cluster.Write).Without(cluster.Failed)
	changed, statusOnly, same := before.compare(after)
	d.line("  The source fetched the push after %s, and the install was ready %s later.", seconds(fetched.Sub(t.start)),
		seconds(took-fetched.Sub(t.start)))
	d.line("  %s by %s to the %d objects of the install:", d.bold(plural(len(writes), "write")), deployerAccount,
		len(after))
	for _, f := range changed {
		d.line("    %s  %s", d.bold(f.name()), d.dim(f.versions()))
		d.fields(f.fields)
	}
	d.line("    %s", d.dim(fmt.Sprintf("%s: unchanged%s", plural(same, "object"), statusOnlyNote(statusOnly))))
	if len(changed) != 1 || len(writes) != 1 {
		return errors.New("expected one write to one object, got " + writes.String())
	}
	d.summary = append(d.summary, fmt.Sprintf("%-10s %d of %d objects with %s, ready %s after git push", "changed",
		len(changed), len(after), plural(len(writes), "write"), seconds(took)))
	return nil
}

func (d *demo) diffLine(l string) string {
	switch text := strings.TrimLeft(l, " "); {
	case strings.HasPrefix(text, "+"):
		return d.green(l)
	case strings.HasPrefix(text, "-"):
		return d.red(l)
	}
	return l
}

func statusOnlyNote(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s: only the status, by Kubernetes controllers", plural(n, "object"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
