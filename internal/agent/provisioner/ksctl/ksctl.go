package ksctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/stacks/state"
)

// Provisioner creates and deletes workers with ksctl.
type Provisioner struct {
	// Program is the path or the name of ksctl; a name is looked up in PATH.
	Program string
	// StateDir is the directory of ksctl's states; "" means ~/.ksctl/state.
	StateDir string
	// AddCommand and DeleteCommand are the subcommands of ksctl, which differ between its releases.
	// {type} and {cloud} are replaced by those of the cluster. The arguments that follow are the
	// same for all releases.
	AddCommand, DeleteCommand string
	// Args are additional arguments of both commands.
	Args []string
	// Log receives the output of ksctl; nil means standard error.
	Log io.Writer
}

// BindFlags registers the flags of the provisioner.
func (p *Provisioner) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Program, "ksctl", "ksctl", "The path or name of the ksctl program.")
	fs.StringVar(&p.StateDir, "states", "", "The directory of ksctl's states; if empty, ~/.ksctl/state.")
	fs.StringVar(&p.AddCommand, "add-command", "create-cluster {type}-{cloud} add-nodes",
		"The subcommand that adds workers; for later releases of ksctl: create {type}-{cloud} add-nodes.")
	fs.StringVar(&p.DeleteCommand, "delete-command", "delete-cluster {type}-{cloud} delete-nodes",
		"The subcommand that deletes workers; for later releases of ksctl: delete {type}-{cloud} del-nodes.")
	fs.StringArrayVar(&p.Args, "ksctl-arg", nil, "An additional argument of both commands; may be repeated.")
}

// Run implements provisioner.Runner.
func (p *Provisioner) Run(ctx context.Context, r provisioner.Request) ([]provisioner.Worker, error) {
	c, err := p.readState(r.Cluster)
	if err != nil {
		return nil, err
	}
	switch r.Operation {
	case provisioner.Create:
		return nil, p.create(ctx, r, c)
	case provisioner.Delete:
		return nil, p.delete(ctx, r, c)
	}
	return toWorkers(c), nil
}

// newError returns a provisioner error of class Other.
func newError(code, format string, args ...any) error {
	return &provisioner.Error{Code: code, Class: provisioner.Other, Message: fmt.Sprintf(format, args...)}
}

// safeArgument matches values that are safe as a part of a path and as an argument: they never
// begin with a dash.
var safeArgument = regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]{0,63}$`)

// readState reads ksctl's state of a cluster.
func (p *Provisioner) readState(c provisioner.Cluster) (*state.Cluster, error) {
	for _, value := range []string{c.Cloud, c.Type, c.Name, c.Region, c.Distribution} {
		if !safeArgument.MatchString(value) {
			return nil, newError("BadCluster",
				"the cluster needs a cloud, a type, a name, a region and a distribution: %.60q is invalid", value)
		}
	}
	dir := p.StateDir
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(home, ".ksctl", "state")
	}
	path := filepath.Join(dir, c.Cloud, c.Type, c.Name+" "+c.Region, "state.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, newError("NoState", "ksctl has no state of the cluster: %s does not exist", path)
	}
	if err != nil {
		return nil, err
	}
	f, err := state.Parse(path, data)
	if err != nil {
		return nil, err
	}
	if f.Form != state.DocumentForm {
		return nil, newError("NoState", "%s does not hold the state of a single cluster", path)
	}
	found := f.Clusters[0]
	if found.ID.Name != c.Name || found.ID.Cloud != c.Cloud {
		return nil, newError("NoState", "%s holds the state of another cluster: %s", path, found.ID)
	}
	return found, nil
}

// workerMachines returns the workers of a state.
func workerMachines(c *state.Cluster) []state.Machine {
	for _, pool := range c.Pools {
		if pool.Role == state.Worker {
			return pool.Machines
		}
	}
	return nil
}

func toWorkers(c *state.Cluster) []provisioner.Worker {
	out := []provisioner.Worker{}
	for _, m := range workerMachines(c) {
		index := uint32(m.Ordinal)
		name := cmp.Or(m.Name, provisioner.Cluster{Name: c.ID.Name}.WorkerName(index))
		out = append(out, provisioner.Worker{Index: index, Name: name, Size: m.Size})
	}
	return out
}

// workerArray describes ksctl's array of workers. After a failure to create machines the array may
// have empty slots, also at its end.
type workerArray struct {
	// length is the number of slots. ksctl appends new workers after the last slot.
	length uint32
	// hostnames are the names by which ksctl finds the Node of each slot; "" for an empty slot.
	hostnames []string
}

func parseWorkerArray(c *state.Cluster) (workerArray, error) {
	var doc struct {
		Clouds map[string]struct {
			Workers map[string]json.RawMessage `json:"info_worker_planes"`
		} `json:"cloud_infrastructure_state"`
	}
	if err := json.Unmarshal(c.JSON(), &doc); err != nil {
		return workerArray{}, newError("NoState", "the state of cluster %s has no array of workers", c.ID)
	}
	var a workerArray
	for key, raw := range doc.Clouds[c.ID.Cloud].Workers {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			a.length = max(a.length, uint32(len(list)))
		}
		var names []string
		if (key == "hostnames" || key == "names" && a.hostnames == nil) && json.Unmarshal(raw, &names) == nil {
			a.hostnames = names
		}
	}
	return a, nil
}

// gapError returns the error for an array with empty slots, with instructions to repair it.
// ksctl creates machines only after the last slot, so it never fills an empty one. ksctl's delete
// command would shorten the array, but it treats the empty host name of the slot as a prefix of
// Node names and deletes the first Node of the cluster.
func gapError(c *state.Cluster, a workerArray) error {
	end, gap := 0, 0
	for i, host := range a.hostnames {
		if host == "" {
			continue
		}
		if i > end {
			gap = i
		}
		end = i + 1
	}
	advice := fmt.Sprintf("truncate its arrays to %d, see HasGaps in config/agent/README.md; don't delete empty "+
		"slots with ksctl, it would delete other Nodes", end)
	if uint32(end) == a.length { // there are workers after the last empty slot
		advice = fmt.Sprintf("delete the workers after the empty slot with ksctl (--noWP %d), then see HasGaps in "+
			"config/agent/README.md", gap)
	}
	return newError("HasGaps", "ksctl's state has %d slots for %d workers, and ksctl never fills empty slots: %s",
		a.length, len(workerMachines(c)), advice)
}

// busyError returns an error if the cluster is in a phase in which ksctl refuses changes.
func busyError(c *state.Cluster) error {
	switch c.Phase {
	case "", "running", "configuring_failed":
		return nil
	}
	return newError("Busy",
		"the cluster is %s, and ksctl does not change it in this phase: check the cluster with ksctl", c.Phase)
}

// create adds workers. ksctl takes the total number of workers. create never passes less than the
// existing number: ksctl would forget machines that keep running in the cloud.
func (p *Provisioner) create(ctx context.Context, r provisioner.Request, c *state.Cluster) error {
	a, err := parseWorkerArray(c)
	if err != nil {
		return err
	}
	length, count := a.length, uint32(len(workerMachines(c)))
	switch {
	case length == r.Desired && count == length:
		return nil
	case length != count:
		return gapError(c, a)
	case length > r.Desired || r.From != length:
		return newError("HasMoved", "can't create workers from %d to %d: the cluster has %d workers", r.From, r.Desired,
			length)
	}
	if err := busyError(c); err != nil {
		return err
	}
	return p.runKsctl(ctx, p.AddCommand, r, "--nodeSizeWP", r.Size)
}

// delete deletes workers from the end. It refuses if one of them has no host name: see gapError.
func (p *Provisioner) delete(ctx context.Context, r provisioner.Request, c *state.Cluster) error {
	a, err := parseWorkerArray(c)
	if err != nil || a.length <= r.Desired {
		return err
	}
	if n := uint32(len(a.hostnames)); n > r.Desired && slices.Contains(a.hostnames[r.Desired:], "") {
		return gapError(c, a)
	}
	if err := busyError(c); err != nil {
		return err
	}
	return p.runKsctl(ctx, p.DeleteCommand, r)
}

// runKsctl runs a subcommand of ksctl for the desired number of workers.
func (p *Provisioner) runKsctl(ctx context.Context, command string, r provisioner.Request, extraArgs ...string) error {
	command = strings.NewReplacer("{type}", r.Cluster.Type, "{cloud}", r.Cluster.Cloud).Replace(command)
	args := append(strings.Fields(command), "-n", r.Cluster.Name, "-r", r.Cluster.Region, "-s", "store-local",
		"--noWP", fmt.Sprint(r.Desired), "--bootstrap", r.Cluster.Distribution)
	args = slices.Concat(args, extraArgs, p.Args)
	log := p.Log
	if log == nil {
		log = os.Stderr
	}
	cmd := exec.CommandContext(ctx, p.Program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 5 * time.Second
	killWithParent(cmd)
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return newError("Interrupted", "ksctl was killed: %v", context.Cause(ctx))
	case cmd.ProcessState == nil:
		return newError("NotStarted", "ksctl can't be started: %v", err)
	}
	// The class is always Other: ksctl reports missing capacity only in its output, which is not a
	// stable interface.
	return newError("KsctlFailed", "ksctl failed with %s; see the agent's log for its output", cmd.ProcessState)
}
