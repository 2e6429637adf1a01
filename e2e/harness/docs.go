package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ksctl/gitops/e2e/programs"
)

// CodeBlocks returns the code blocks of a language in a section of a documentation page of this
// repository. Suites run them, so that the documentation stays correct. The section begins at a
// heading ("## " or "### ") and ends at the next heading of the same or a higher level.
func CodeBlocks(page, heading, language string) ([]string, error) {
	text, err := os.ReadFile(RepoPath(page))
	if err != nil {
		return nil, err
	}
	at := regexp.MustCompile(`(?m)^(##+) ` + regexp.QuoteMeta(heading) + "\n").FindSubmatchIndex(text)
	if at == nil {
		return nil, fmt.Errorf("%s has no heading %q", page, heading)
	}
	section, level := string(text[at[1]:]), at[3]-at[2]
	if end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{2,%d} `, level)).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	var out []string
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(section, -1) {
		out = append(out, block[1])
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no %s code block under %q", page, language, heading)
	}
	return out, nil
}

// YAMLFiles returns the YAML blocks of a section whose first line is a comment with a file path,
// such as "# stacks/shop/stack.yaml", by that path.
func YAMLFiles(page, heading string) (map[string]string, error) {
	blocks, err := CodeBlocks(page, heading, "yaml")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, b := range blocks {
		first, _, _ := strings.Cut(b, "\n")
		if path, ok := strings.CutPrefix(first, "# "); ok && strings.HasSuffix(path, ".yaml") {
			files[path] = b
		}
	}
	return files, nil
}

// Shell runs a shell script in a folder as a user would: with kubectl and the plugin kubectl-ksctl
// on PATH, as the administrator of the cluster. It returns the combined output.
func (h *Harness) Shell(ctx context.Context, dir, script string) (string, error) {
	if err := h.prepareShell(); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.ControlPlane.Kubeconfig(), "PATH="+h.shellDir()+
		string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s\n%s%w", script, out, err)
	}
	return string(out), err
}

func (h *Harness) shellDir() string { return filepath.Join(h.dir, "bin") }

// linkShellPrograms creates the folder with kubectl and the plugin.
func (h *Harness) linkShellPrograms() error {
	if err := os.Mkdir(h.shellDir(), 0o750); err != nil {
		return err
	}
	if err := os.Symlink(h.ControlPlane.Kubectl(), filepath.Join(h.shellDir(), "kubectl")); err != nil {
		return err
	}
	plugin, err := h.Build(context.Background(), programs.Kubectl)
	if err != nil {
		return err
	}
	return os.Symlink(plugin, filepath.Join(h.shellDir(), programs.Kubectl))
}
