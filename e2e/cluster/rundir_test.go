package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// newDeadRun creates the folder of a run with one process of its own, and with a pid file whose pid
// another process has reused. The run counts as dead when the caller closes its lock.
func newDeadRun(t *testing.T, root string, reusedPID int) (r *runDir, left *exec.Cmd) {
	t.Helper()
	r, err := newRunDir(root)
	if err != nil {
		t.Fatal(err)
	}
	left = exec.Command("tail", "-f", r.path(ownerFile))
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"left": left.Process.Pid, "stranger": reusedPID} {
		if err := os.WriteFile(r.path(name+pidSuffix), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r, left
}

func TestSweepKillsOnlyProcessesOfDeadRuns(t *testing.T) {
	root := t.TempDir()
	r, left := newDeadRun(t, root, os.Getpid())
	starting := filepath.Join(root, newPrefix+"1")
	if err := os.Mkdir(starting, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- left.Wait() }()

	if err := sweep(root); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-gone:
		t.Fatalf("sweep killed a process of a run whose owner is alive: %v", err)
	default:
	}

	if err := r.owner.Close(); err != nil { // as the kernel does when the owner dies
		t.Fatal(err)
	}
	if err := sweep(root); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("the process of a dead run is still running")
	}
	if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
		t.Errorf("the folder of a dead run still exists: %v", err)
	}
	if _, err := os.Stat(starting); err != nil {
		t.Errorf("the folder of a start in progress was deleted: %v", err)
	}
}

func TestRunsRootRejectsFolderAccessibleByOthers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	root, err := runsRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := runsRoot(); err == nil {
		t.Error("runsRoot accepted a folder that other users can access")
	}
}
