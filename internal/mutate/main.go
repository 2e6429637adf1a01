// Command mutate changes one line of the source at a time and reports which changes the tests
// of the package do not notice.
//
//	mutate                 all mutations in mutations.tsv
//	mutate -only engine    the mutations whose line matches
//
// The checkout is not changed: the mutated files are in a temporary folder, and an overlay makes
// the go command compile them. mutate exits with 1 if a mutation survives, no longer applies, or
// does not compile.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// timeout is the timeout of the tests of one mutation. Tests that hang count as failed, so the
// mutation is caught.
const timeout = 10 * time.Minute

//go:embed mutations.tsv
var mutationsTSV string

func main() {
	only := flag.String("only", "", "run only mutations whose line matches this expression")
	flag.Parse()
	if err := run(*only); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(only string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	filter, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	mutations, err := parse(mutationsTSV)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	mutations = slices.DeleteFunc(mutations, func(m mutation) bool { return !filter.MatchString(m.String()) })
	if err := checkUnmutated(ctx, mutations, folder); err != nil {
		return err
	}
	missed, ran := 0, 0
	for _, m := range mutations {
		began := time.Now()
		result, err := m.test(ctx, folder)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ran++
		if err != nil || result != caught {
			missed++
		}
		if err != nil {
			result = err.Error()
		}
		fmt.Printf("%-8s %4.0fs  %s\n", result, time.Since(began).Seconds(), m)
	}
	fmt.Printf("%d of %d mutations caught\n", ran-missed, ran)
	if missed > 0 {
		return fmt.Errorf("%d mutations were not caught", missed)
	}
	return nil
}

// checkUnmutated runs the tests of each package without a mutation. Tests that fail anyway would
// catch every mutation.
func checkUnmutated(ctx context.Context, mutations []mutation, folder string) error {
	passed := map[string]bool{}
	for _, m := range mutations {
		if passed[m.Package] {
			continue
		}
		m.New = m.Old
		result, err := m.test(ctx, folder)
		if err != nil {
			return err
		}
		if result != survived {
			return fmt.Errorf("the tests of %s fail without a mutation", m.Package)
		}
		passed[m.Package] = true
	}
	return nil
}

// mutation replaces a text that occurs once in a file.
type mutation struct {
	// File and Package are relative to the root of the module.
	File, Old, New, Package string
	// Note describes what the mutation breaks.
	Note string
}

func (m mutation) String() string {
	return fmt.Sprintf("%s: %s: %q → %q", m.File, m.Note, m.Old, m.New)
}

// parse parses lines of five columns, separated by tabs. Lines that begin with # are comments.
func parse(text string) ([]mutation, error) {
	var mutations []mutation
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 5 {
			return nil, fmt.Errorf("mutations.tsv:%d: %d columns, want file, old, new, package and note", i+1,
				len(columns))
		}
		mutations = append(mutations, mutation{columns[0], columns[1], columns[2], columns[3], columns[4]})
	}
	return mutations, nil
}

// Results of a mutation.
const (
	caught   = "caught"
	survived = "SURVIVED"
)

// test compiles the tests of the package with the mutation, runs them, and returns caught or
// survived.
func (m mutation) test(ctx context.Context, folder string) (string, error) {
	overlay, err := m.overlay(folder)
	if err != nil {
		return "", err
	}
	tests := filepath.Join(folder, "tests")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", tests, "./"+m.Package)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("does not compile: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, tests, "-test.failfast", "-test.timeout", timeout.String())
	cmd.Dir = m.Package
	// Suites stop their control plane when they are interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return survived, nil
	case errors.As(err, &exit):
		return caught, nil
	}
	return "", err
}

// overlay writes the mutated file, and returns the overlay file for the go command.
func (m mutation) overlay(folder string) (string, error) {
	source, err := os.ReadFile(m.File)
	if err != nil {
		return "", err
	}
	mutated, err := m.apply(string(source))
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(folder, "mutated.go")
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{path: replacement}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	return overlay,
		errors.Join(os.WriteFile(replacement, []byte(mutated), 0o600), os.WriteFile(overlay, content, 0o600))
}

// apply returns the source with the mutation, whose text must occur once.
func (m mutation) apply(source string) (string, error) {
	if n := strings.Count(source, m.Old); n != 1 {
		return "", fmt.Errorf("does not apply: %q occurs %d times in %s", m.Old, n, m.File)
	}
	return strings.Replace(source, m.Old, m.New, 1), nil
}
