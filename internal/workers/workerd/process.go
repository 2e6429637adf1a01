package workerd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ksctl/gitops/internal/atomicfile"
)

// controlDescriptor is the number of the first file of exec.Cmd.ExtraFiles in the process.
const controlDescriptor = 3

// Options are the options of Start.
type Options struct {
	// Program is the path of workerd.
	Program string
	// ConfigFile is the file to which the configuration is written.
	ConfigFile string
	Workers    []Worker
	// Networks are those that scripts may connect to, as in Config.
	Networks []string
	// Listeners are the sockets of workers by name; the process shares them with its parent.
	Listeners map[string]*Listener
	// Env is the environment of the process, which has no other variables.
	Env            []string
	Stdout, Stderr io.Writer
}

// Process is a running workerd.
type Process struct {
	cmd                *exec.Cmd
	listening, exited  chan struct{}
	controlPipe        *os.File
	controlPipeDrained chan struct{}
}

// Start starts workerd. The caller must end it with Stop.
func Start(o Options) (*Process, error) {
	if err := atomicfile.Write(o.ConfigFile, []byte(Config(o.Workers, o.Networks)), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration of workerd: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = writer.Close() }()
	// Absolute paths in the configuration are below the import path.
	args := []string{"serve", "--import-path=/", fmt.Sprintf("--control-fd=%d", controlDescriptor)}
	files := []*os.File{writer}
	for _, w := range o.Workers {
		if listener := o.Listeners[w.Name]; listener != nil {
			args = append(args, fmt.Sprintf("--socket-fd=%s=%d", w.Name, controlDescriptor+len(files)))
			files = append(files, listener.file)
		}
	}
	config, err := filepath.Abs(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(o.Program, append(args, config)...) //nolint:noctx // Stop ends it
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = files, o.Stdout, o.Stderr
	cmd.Env = append([]string{}, o.Env...) // nil is that of this process
	// Signals of a terminal are for the parent, which stops the process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = reader.Close()
		return nil, fmt.Errorf("starting workerd: %w", err)
	}
	p := &Process{cmd: cmd, listening: make(chan struct{}), exited: make(chan struct{}), controlPipe: reader,
		controlPipeDrained: make(chan struct{})}
	go p.readEvents(len(o.Workers))
	go p.wait()
	return p, nil
}

// readEvents closes p.listening when every socket listens.
func (p *Process) readEvents(sockets int) {
	defer close(p.controlPipeDrained)
	seen := map[string]bool{}
	for lines := bufio.NewScanner(p.controlPipe); lines.Scan(); {
		var event struct{ Event, Socket string }
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Event != "listen" || seen[event.Socket] {
			continue
		}
		seen[event.Socket] = true
		if len(seen) == sockets {
			close(p.listening)
		}
	}
}

func (p *Process) wait() {
	defer close(p.exited)
	_ = p.cmd.Wait() // State has the result
	_ = p.controlPipe.Close()
	<-p.controlPipeDrained
}

// Listening returns a channel that is closed when the sockets of all workers serve requests.
func (p *Process) Listening() <-chan struct{} { return p.listening }

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// State describes how the process ended. It may be called after Exited.
func (p *Process) State() string { return p.cmd.ProcessState.String() }

// Stop ends the process: it accepts no more connections, and has a grace period to respond to
// requests. It reports whether the process ended within that period. Further calls do nothing.
func (p *Process) Stop(grace time.Duration) bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	return false
}
