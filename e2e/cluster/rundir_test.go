package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// abandon makes the folder of a run that has died, with a process of its own
// and a pid file that by now names a stranger.
func abandon(t *testing.T, root string, stranger int) (r *runDir, left *exec.Cmd) {
	t.Helper()
	r, err := newRunDir(root)
	if err != nil {
		t.Fatal(err)
	}
	left = exec.Command("tail", "-f", r.path(ownerFile))
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"left": left.Process.Pid, "stranger": stranger} {
		if err := os.WriteFile(r.path(name+pidSuffix), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r, left
}

func TestSweepEndsWhatDeadRunsLeftAndNothingElse(t *testing.T) {
	root := t.TempDir()
	r, left := abandon(t, root, os.Getpid())
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
		t.Fatalf("a process of a run whose owner lives was ended: %v", err)
	default:
	}

	if err := r.owner.Close(); err != nil { // what the kernel does when the owner dies
		t.Fatal(err)
	}
	if err := sweep(root); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("the process of a dead run is still there")
	}
	if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
		t.Errorf("the folder of a dead run is still there: %v", err)
	}
	if _, err := os.Stat(starting); err != nil {
		t.Errorf("the folder of a start that is going on: %v", err)
	}
}

func TestRunsRootOfSomebodyElseIsRefused(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	root, err := runsRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := runsRoot(); err == nil {
		t.Error("a folder that others can enter was taken")
	}
}
