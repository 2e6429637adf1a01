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

// LogsVariable is the environment variable with the folder to which [Cluster.Stop] moves the logs
// of a run, one subfolder per run. If it is unset, the logs are deleted with the run's folder.
const LogsVariable = "KSCTL_E2E_LOGS"

const (
	pidSuffix = ".pid"
	ownerFile = "owner.lock"
	// newPrefix is the name prefix of a run folder whose owner does not hold the lock yet.
	newPrefix = "new-"
)

// runDir is the folder of one run. The owning process holds a lock on a file in it until it dies. A
// process that acquires the lock knows that the owner is dead.
type runDir struct {
	dir   string
	owner *os.File
}

func (r *runDir) path(name string) string { return filepath.Join(r.dir, name) }

// runsRoot creates and returns the parent folder of all runs of this user. It returns an error if
// the folder belongs to, or is accessible by, another user, because runs write private keys to it.
func runsRoot() (string, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("ksctl-gitops-e2e-%d", os.Getuid()))
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("creating the folder of runs: %w", err)
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", fmt.Errorf("reading the folder of runs: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s must be a folder that only this user can access", root)
	}
	return root, nil
}

// newRunDir creates the folder of a new run, locked by this process.
func newRunDir(root string) (_ *runDir, err error) {
	temp, err := os.MkdirTemp(root, newPrefix)
	if err != nil {
		return nil, fmt.Errorf("creating the folder of this run: %w", err)
	}
	r := &runDir{dir: filepath.Join(root, strings.TrimPrefix(filepath.Base(temp), newPrefix))}
	defer func() {
		if err != nil {
			_ = r.owner.Close()
			_ = os.RemoveAll(temp)
		}
	}()
	r.owner, err = os.OpenFile(filepath.Join(temp, ownerFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the owner's lock: %w", err)
	}
	if err := syscall.Flock(int(r.owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("acquiring the owner's lock: %w", err)
	}
	// Other processes see the folder only now, because they delete a folder whose lock is free.
	if err := os.Rename(temp, r.dir); err != nil {
		return nil, fmt.Errorf("renaming the folder of this run: %w", err)
	}
	return r, nil
}

// remove moves the logs to the folder of [LogsVariable], if set, deletes the run's folder, and
// releases the lock. With keep it only releases the lock.
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

// moveLogs moves the *.log files of one folder to another.
func moveLogs(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.log"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("creating the folder for logs: %w", err)
	}
	for _, file := range files {
		if err := moveFile(file, filepath.Join(to, filepath.Base(file))); err != nil {
			return fmt.Errorf("moving the log %s: %w", file, err)
		}
	}
	return nil
}

// moveFile renames a file, or copies it if the two paths are on different file systems.
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

// sweep kills the processes of dead runs and deletes their folders.
func sweep(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("listing earlier runs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // deleted since ReadDir
		}
		// A folder without its final name belongs to a start in progress, or to one that was killed
		// before it started any process.
		if strings.HasPrefix(e.Name(), newPrefix) && time.Since(info.ModTime()) < time.Hour {
			continue
		}
		if err := sweepRun(filepath.Join(root, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("cleaning up after the dead run %s: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// sweepRun cleans up one run if its owner is dead.
func sweepRun(dir string) error {
	owner, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR, 0)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return os.RemoveAll(dir) // partly removed by an earlier sweep
		}
		return err
	}
	defer func() { _ = owner.Close() }()
	if err := syscall.Flock(int(owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil // the owner is alive, or another process is cleaning up
	}
	if os.Getenv(keepVariable) != "" {
		return killLeftovers(dir)
	}
	return errors.Join(killLeftovers(dir), os.RemoveAll(dir))
}

// killLeftovers kills the processes of a dead run and waits until they have ended.
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
		// The pid may have been reused; the command line of our processes contains the folder.
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
				return fmt.Errorf("process %d did not end after SIGKILL", pid)
			}
			time.Sleep(pollInterval)
		}
	}
	return nil
}
