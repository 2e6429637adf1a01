package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keepRunning prints addresses and suggested commands, and waits for Ctrl-C.
func (d *demo) keepRunning(ctx context.Context) error {
	env, err := d.writeEnv()
	if err != nil {
		return err
	}
	d.line("%s", d.bold("RUNNING UNTIL CTRL-C"))
	d.line("  kubeconfig  %s", d.cluster.Kubeconfig())
	d.line("  repository  %s  (accepts clone and push; the source polls every 2 seconds)", d.repository.bare.URL())
	d.line("  log         %s", d.controller.LogPath)
	for _, part := range suggestions(env, d.repository.bare.URL()) {
		d.line("")
		d.line("  %s", part.what)
		for _, c := range part.commands {
			d.line("    %s", d.cyan(c))
		}
	}
	d.line("")
	<-ctx.Done()
	return context.Cause(ctx)
}

// writeEnv writes a file for a shell to source. It sets PATH and KUBECONFIG so that kubectl uses
// the demo's cluster.
func (d *demo) writeEnv() (string, error) {
	dir := d.cluster.Dir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return "", err
	}
	if err := os.Symlink(d.cluster.Kubectl(), filepath.Join(bin, "kubectl")); err != nil {
		return "", err
	}
	env := filepath.Join(dir, "env")
	text := fmt.Sprintf("export KUBECONFIG=%s KUBECACHEDIR=%s PATH=%s:\"$PATH\"\n",
		quote(d.cluster.Kubeconfig()), quote(filepath.Join(dir, "kubectl")), quote(bin))
	return env, os.WriteFile(env, []byte(text), 0o600)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// suggestion is a description and shell commands that a user can try.
type suggestion struct {
	what     string
	commands []string
}

func suggestions(env, url string) []suggestion {
	return []suggestion{
		{"First, in another terminal:", []string{". " + env}},
		{"Inspect the objects:", []string{
			"kubectl get ksctlsources,ksctlinstalls -A",
			"kubectl -n shop get deployments,statefulsets,pods",
			"kubectl -n shop describe ksctlinstall shop",
		}},
		{"Change the stack; the controller applies the push:", []string{
			"git clone " + url + " && cd " + repositoryName,
			"sed -i.bak 's/newTag: 6.9.1/newTag: 6.9.2/' stacks/shop/web/kustomization.yaml",
			"git commit -am 'podinfo 6.9.2' && git push",
		}},
		{"Change a parameter of this cluster's install:", []string{
			"sed -i.bak 's/logLevel: debug/logLevel: warn/' clusters/dev/install.yaml",
			"kubectl apply --server-side -k clusters/dev",
		}},
		{"Change objects manually; the controller corrects them:", []string{
			"kubectl -n shop delete configmap shop-settings",
			"kubectl -n shop set image deployment/frontend frontend=nginx",
		}},
		{"Remove the install, last wave first:", []string{"kubectl -n shop delete ksctlinstall shop"}},
	}
}
