package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// leaveUp says what is there to try, and waits for Ctrl-C.
func (d *demo) leaveUp(ctx context.Context) error {
	env, err := d.writeEnv()
	if err != nil {
		return err
	}
	d.line("%s", d.bold("LEFT UP UNTIL CTRL-C"))
	d.line("  kubeconfig  %s", d.cluster.Kubeconfig())
	d.line("  repository  %s  (clone and push work; a push is seen within 2 seconds)", d.repository.bare.URL())
	d.line("  log         %s", d.controller.log)
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

// writeEnv writes a file for a shell to read: kubectl, and what leads it here
// and nowhere else.
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

// suggestion is something to try, as a user would type it.
type suggestion struct {
	what     string
	commands []string
}

func suggestions(env, url string) []suggestion {
	return []suggestion{
		{"In another terminal, first:", []string{". " + env}},
		{"Look around:", []string{
			"kubectl get ksctlsources,ksctlinstalls -A",
			"kubectl -n shop get deployments,statefulsets,pods",
			"kubectl -n shop describe ksctlinstall shop",
		}},
		{"Change the stack; the controller does the rest:", []string{
			"git clone " + url + " && cd " + repositoryName,
			"sed -i.bak 's/newTag: 6.9.1/newTag: 6.9.2/' stacks/shop/web/kustomization.yaml",
			"git commit -am 'podinfo 6.9.2' && git push",
		}},
		{"Change what this cluster wants of it:", []string{
			"sed -i.bak 's/logLevel: debug/logLevel: warn/' clusters/dev/install.yaml",
			"kubectl apply --server-side -k clusters/dev",
		}},
		{"Break something, and look again:", []string{
			"kubectl -n shop delete configmap shop-settings",
			"kubectl -n shop set image deployment/frontend frontend=nginx",
		}},
		{"Remove it all, last wave first:", []string{"kubectl -n shop delete ksctlinstall shop"}},
	}
}
