package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ksctl/gitops/internal/renderworker"
)

const (
	// hostileTimeout is the time limit of our renders, and hostileHelmTimeout that of Helm's, which
	// has none of its own.
	hostileTimeout     = 10 * time.Second
	hostileHelmTimeout = 2 * hostileTimeout
	// hostileMaxCPU and hostileMaxBytes are what our side may use: the limits of a worker, on two
	// processors, and the parts of both processes that every render needs.
	hostileMaxCPU   = 2*hostileTimeout + time.Second
	hostileMaxBytes = renderworker.DefaultMemoryBytes + renderworker.MinMemoryBytes
	// hostileHelmBytes is the memory limit of Helm's process, which has none of its own.
	hostileHelmBytes = 2 << 30
)

// hostileSides are the arguments that make this program render one chart in a folder.
var hostileSides = map[string]func(folder stackFolder) error{
	"hostile-helm": hostileWithHelm,
	"hostile-ours": hostileWithUs,
}

// hostileCharts are the files of charts that try to use unlimited time or memory, by name.
func hostileCharts() map[string]map[string]string {
	template := func(text string) map[string]string { return map[string]string{"templates/x.yaml": text} }
	deep := strings.Repeat("a", 200)
	return map[string]map[string]string{
		"endless loops":     template("{{ range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}"),
		"gigabyte output":   template(`{{ range until 1024 }}{{ repeat 1048576 "a" }}{{ end }}`),
		"recursive include": template(`{{ define "a" }}{{ include "a" . }}{{ include "a" . }}{{ end }}{{ include "a" . }}`),
		"recursive tpl": {"templates/x.yaml": "{{ tpl .Values.again . }}",
			"values.yaml": "again: '{{ tpl .Values.again . }}'\n"},
		"glob with many wildcards": {"templates/x.yaml": `{{ range until 1000000 }}{{ $.Files.Glob "` +
			strings.Repeat("*a", 30) + `*b" }}{{ end }}`, deep: ""},
		"glob with many alternatives": template(`{{ .Files.Glob "` + strings.Repeat("{a,b}", 5000) + `" }}`),
		"aliases in the output":       template("a: &a [x,x,x,x,x,x,x,x,x]\n" + aliasLevels("abcdefghi")),
		"many documents":              template("{{ range until 1000000 }}---\na: 1\n{{ end }}"),
	}
}

// aliasLevels returns lists that refer nine times to the one before, named by the letters.
func aliasLevels(names string) string {
	var out strings.Builder
	for i := 1; i < len(names); i++ {
		before := strings.Repeat(",*"+names[i-1:i], 9)[1:]
		_, _ = fmt.Fprintf(&out, "%c: &%c [%s]\n", names[i], names[i], before)
	}
	return out.String()
}

// benchHostile renders hostile charts with both sides, each in a process of its own, and prints the
// CPU time, the peak memory and the outcome. It returns an error if our side exceeds its limits.
func benchHostile(ctx context.Context, out io.Writer) error {
	var unbounded []error
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "chart\tside\tCPU\tpeak memory\toutcome")
	charts := hostileCharts()
	for _, name := range slices.Sorted(maps.Keys(charts)) {
		folder, err := writeHostileChart(charts[name])
		if err != nil {
			return err
		}
		for _, side := range slices.Sorted(maps.Keys(hostileSides)) {
			cpu, peak, outcome := runHostile(ctx, side, folder)
			_, _ = fmt.Fprintf(table, "%s\t%s\t%.1fs\t%d MiB\t%s\n", name, strings.TrimPrefix(side, "hostile-"),
				cpu.Seconds(), peak>>20, outcome)
			if side == "hostile-ours" && (cpu > hostileMaxCPU || peak > hostileMaxBytes) {
				unbounded = append(unbounded, fmt.Errorf("%s: the limits of a render worker were exceeded", name))
			}
		}
		if err := folder.remove(); err != nil {
			return err
		}
	}
	return errors.Join(append(unbounded, table.Flush())...)
}

func writeHostileChart(files map[string]string) (folder stackFolder, err error) {
	folder.chart = "chart"
	if folder.root, err = os.MkdirTemp("", "hostile-*"); err != nil {
		return folder, err
	}
	files["Chart.yaml"] = "apiVersion: v2\nname: hostile\nversion: 1.0.0\n"
	for name, content := range files {
		file := filepath.Join(folder.root, folder.chart, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700),
			os.WriteFile(file, []byte(content), 0o600)); err != nil {
			return folder, err
		}
	}
	return folder, nil
}

// runHostile runs one side in a process. Its usage includes that of render workers.
func runHostile(ctx context.Context, side string, folder stackFolder) (cpu time.Duration, peak int64, outcome string) {
	ctx, cancel := context.WithTimeout(ctx, hostileHelmTimeout)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, os.Args[0], side, folder.root)
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		peak = usage.Maxrss << 10
	}
	outcome = "rendered"
	switch {
	case ctx.Err() != nil:
		outcome = "killed after " + hostileHelmTimeout.String()
	case err != nil:
		outcome, _, _ = strings.Cut(output.String(), "\n")
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peak, fmt.Sprintf("%.150s", outcome)
}

func hostileWithHelm(folder stackFolder) error {
	limit := syscall.Rlimit{Cur: hostileHelmBytes, Max: hostileHelmBytes}
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &limit); err != nil {
		return err
	}
	_, err := folder.renderWithHelm(install{release: releaseName, namespace: namespace})
	return err
}

// hostileWithUs renders in a render worker with the usual limits, but a shorter timeout.
func hostileWithUs(folder stackFolder) error {
	pool := renderworker.New(renderworker.Options{Args: []string{renderworker.Command}, Workers: 1,
		Timeout: hostileTimeout, MemoryBytes: renderworker.DefaultMemoryBytes,
		OutputBytes: renderworker.DefaultOutputBytes})
	defer pool.Close()
	req, err := folder.request(install{release: releaseName, namespace: namespace})
	if err != nil {
		return err
	}
	_, err = pool.Render(context.Background(), req)
	return err
}
