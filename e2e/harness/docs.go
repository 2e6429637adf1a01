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

// Blocks are the blocks of a language under a heading of a page of this repository,
// which suites run, so that the page can't say what does not work. A heading is what
// stands after "## " or "### ", and ends at the next one of its level or above.
func Blocks(page, heading, language string) ([]string, error) {
	text, err := os.ReadFile(repository(page))
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
		return nil, fmt.Errorf("%s has no %s under %q", page, language, heading)
	}
	return out, nil
}

// Files are the YAML blocks under a heading whose first line is a path of a file that
// they are: "# stacks/shop/stack.yaml".
func Files(page, heading string) (map[string]string, error) {
	blocks, err := Blocks(page, heading, "yaml")
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

// Shell runs a script in a folder as a person would, with kubectl and our plugin of it,
// as the administrator of the cluster. It gives what the script wrote.
func (h *Harness) Shell(ctx context.Context, dir, script string) (string, error) {
	h.shellOnce.Do(func() { h.shellErr = h.makeShell(context.WithoutCancel(ctx)) })
	if h.shellErr != nil {
		return "", h.shellErr
	}
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.Plane.Kubeconfig(), "PATH="+h.shellDir()+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s\n%s%w", script, out, err)
	}
	return string(out), err
}

func (h *Harness) shellDir() string { return filepath.Join(h.dir, "bin") }

func (h *Harness) makeShell(ctx context.Context) error {
	if err := os.Mkdir(h.shellDir(), 0o750); err != nil {
		return err
	}
	if err := os.Symlink(h.Plane.Kubectl(), filepath.Join(h.shellDir(), "kubectl")); err != nil {
		return err
	}
	plugin, err := programs.Build(ctx, h.dir, programs.Kubectl)
	if err != nil {
		return err
	}
	return os.Symlink(plugin, filepath.Join(h.shellDir(), programs.Kubectl))
}
