package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// LogsVariable is the environment variable with the folder to which [Cluster.Stop] moves the
// logs of a run, each run in a folder of its own. Unset, logs are deleted with the run.
const LogsVariable = "KSCTL_E2E_LOGS"

const (
	pidSuffix = ".pid"
	ownerFile = "owner.lock"
	// newPrefix marks a run folder whose owner does not hold its lock yet.
	newPrefix = "new-"
)

// runDir is the folder of one run. Its owner holds a lock on a file in it as
// long as it lives; whoever can take that lock knows that the owner is dead.
type runDir struct {
	dir   string
	owner *os.File
}

func (r *runDir) path(name string) string { return filepath.Join(r.dir, name) }

// runsRoot returns the folder of all runs of this user, and makes it. A folder
// there that belongs to somebody else is refused: it will hold private keys.
func runsRoot() (string, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("ksctl-gitops-e2e-%d", os.Getuid()))
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("create the folder of runs: %w", err)
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", fmt.Errorf("look at the folder of runs: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s must be a folder of this user that nobody else can enter", root)
	}
	return root, nil
}

// newRunDir makes the folder of a new run, locked by this process.
func newRunDir(root string) (_ *runDir, err error) {
	temp, err := os.MkdirTemp(root, newPrefix)
	if err != nil {
		return nil, fmt.Errorf("create the folder of this run: %w", err)
	}
	r := &runDir{dir: filepath.Join(root, strings.TrimPrefix(filepath.Base(temp), newPrefix))}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(temp)
		}
	}()
	r.owner, err = os.OpenFile(filepath.Join(temp, ownerFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the owner's lock: %w", err)
	}
	if err := syscall.Flock(int(r.owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = r.owner.Close()
		return nil, fmt.Errorf("take the owner's lock: %w", err)
	}
	// Only now may other processes see it, or they would take it for orphaned.
	if err := os.Rename(temp, r.dir); err != nil {
		_ = r.owner.Close()
		return nil, fmt.Errorf("name the folder of this run: %w", err)
	}
	return r, nil
}

// remove gives the folder up; it is deleted unless keep. The logs go to the folder of
// [LogsVariable] if that is set.
func (r *runDir) remove(keep bool) error {
	var errs []error
	if logs := os.Getenv(LogsVariable); logs != "" && !keep {
		errs = append(errs, moveLogs(r.dir, filepath.Join(logs, filepath.Base(r.dir))))
	}
	if !keep {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(append(errs, r.owner.Close())...)
}

// moveLogs moves the *.log files of a folder into another one.
func moveLogs(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.log"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("create the folder for logs: %w", err)
	}
	for _, file := range files {
		if err := moveFile(file, filepath.Join(to, filepath.Base(file))); err != nil {
			return fmt.Errorf("move the log %s: %w", file, err)
		}
	}
	return nil
}

// moveFile copies where the two paths are on different file systems.
func moveFile(from, to string) error {
	if err := os.Rename(from, to); !errors.Is(err, syscall.EXDEV) {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// sweep ends what dead runs have left running, and deletes their folders.
func sweep(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("list earlier runs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // gone since it was listed
		}
		// A folder without its final name belongs to a start that is going on,
		// or that was killed in an instant of it and started nothing.
		if strings.HasPrefix(e.Name(), newPrefix) && time.Since(info.ModTime()) < time.Hour {
			continue
		}
		if err := sweepRun(filepath.Join(root, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("clean up after the dead run %s: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// sweepRun cleans up one run if its owner is dead.
func sweepRun(dir string) error {
	owner, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR, 0)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return os.RemoveAll(dir) // half removed already
		}
		return err
	}
	defer func() { _ = owner.Close() }()
	if err := syscall.Flock(int(owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil // its owner lives, or another process is cleaning up
	}
	if os.Getenv(keepVariable) != "" {
		return killLeftovers(dir)
	}
	return errors.Join(killLeftovers(dir), os.RemoveAll(dir))
}

// killLeftovers ends the processes of a dead run and waits until they are gone.
func killLeftovers(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"+pidSuffix))
	if err != nil {
		return err
	}
	var left []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		// A number may belong to a stranger by now; ours name the folder.
		if err != nil || !strings.Contains(commandLine(pid), dir) {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		left = append(left, pid)
	}
	deadline := time.Now().Add(time.Minute)
	for _, pid := range left {
		for strings.Contains(commandLine(pid), dir) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d is still there after SIGKILL", pid)
			}
			time.Sleep(pollInterval)
		}
	}
	return nil
}
