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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/stacks/state"
)

// Provisioner runs ksctl.
type Provisioner struct {
	// Program is ksctl; found on PATH if it is no path.
	Program string
	// States is the folder of ksctl's states; ~/.ksctl/state when empty.
	States string
	// Add and Remove are the commands, as the release at hand has them: {type} and {cloud}
	// stand for those of the cluster. What follows them is the same for all.
	Add, Remove string
	// Args are further arguments of both.
	Args []string
	// Log gets what ksctl writes; standard error when nil.
	Log io.Writer
}

var _ provisioner.Runner = (*Provisioner)(nil)

// BindFlags adds the flags to a set.
func (p *Provisioner) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Program, "ksctl", "ksctl", "The program ksctl.")
	fs.StringVar(&p.States, "states", "", "The folder of ksctl's states; empty: ~/.ksctl/state.")
	fs.StringVar(&p.Add, "add-command", "create-cluster {type}-{cloud} add-nodes", "The command that adds workers; later releases have create {type}-{cloud} add-nodes.")
	fs.StringVar(&p.Remove, "delete-command", "delete-cluster {type}-{cloud} delete-nodes", "The command that deletes workers; later releases have delete {type}-{cloud} del-nodes.")
	fs.StringArrayVar(&p.Args, "ksctl-arg", nil, "A further argument of both commands; may be given several times.")
}

// Run implements provisioner.Runner.
func (p *Provisioner) Run(ctx context.Context, r provisioner.Request) ([]provisioner.Worker, error) {
	c, err := p.read(r.Cluster)
	if err != nil {
		return nil, err
	}
	switch r.Operation {
	case provisioner.Create:
		return nil, p.create(ctx, r, c)
	case provisioner.Delete:
		return nil, p.delete(ctx, r, c)
	}
	return workersOf(c), nil
}

// refuse is an error that ksctl has no part in.
func refuse(code, format string, args ...any) error {
	return &provisioner.Error{Code: code, Class: provisioner.Other, Message: fmt.Sprintf(format, args...)}
}

// part is what may be a part of a path or an argument. It never begins with a dash.
var part = regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]{0,63}$`)

// read reads ksctl's state of a cluster.
func (p *Provisioner) read(c provisioner.Cluster) (*state.Cluster, error) {
	for _, said := range []string{c.Cloud, c.Type, c.Name, c.Region, c.Distribution} {
		if !part.MatchString(said) {
			return nil, refuse("BadCluster", "the cluster needs a cloud, a type, a name, a region and a distribution, and %.60q is none", said)
		}
	}
	folder := p.States
	if folder == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		folder = filepath.Join(home, ".ksctl", "state")
	}
	path := filepath.Join(folder, c.Cloud, c.Type, c.Name+" "+c.Region, "state.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse("NoState", "ksctl has no state of the cluster: there is no %s", path)
	}
	if err != nil {
		return nil, err
	}
	f, err := state.Parse(path, data)
	if err != nil {
		return nil, err
	}
	if f.Form != state.DocumentForm {
		return nil, refuse("NoState", "%s is not the state of one cluster", path)
	}
	have := f.Clusters[0]
	if have.ID.Name != c.Name || have.ID.Cloud != c.Cloud {
		return nil, refuse("NoState", "%s is the state of cluster %s", path, have.ID)
	}
	return have, nil
}

// machines are the workers that a state has.
func machines(c *state.Cluster) []state.Machine {
	for _, pool := range c.Pools {
		if pool.Role == state.Worker {
			return pool.Machines
		}
	}
	return nil
}

func workersOf(c *state.Cluster) []provisioner.Worker {
	out := []provisioner.Worker{}
	for _, m := range machines(c) {
		index := uint32(m.Ordinal)
		name := cmp.Or(m.Name, provisioner.Cluster{Name: c.ID.Name}.WorkerName(index))
		out = append(out, provisioner.Worker{Index: index, Name: name, Size: m.Size})
	}
	return out
}

// array is ksctl's one of workers. It may have empty places, also at its end, after machines
// could not be made.
type array struct {
	// places is how long it is, of which ksctl counts on.
	places uint32
	// hosts are the names by which ksctl finds the Nodes of its places.
	hosts []string
}

func arrayOf(c *state.Cluster) (array, error) {
	var doc struct {
		Clouds map[string]struct {
			Workers map[string]json.RawMessage `json:"info_worker_planes"`
		} `json:"cloud_infrastructure_state"`
	}
	if err := json.Unmarshal(c.JSON(), &doc); err != nil {
		return array{}, refuse("NoState", "the state of cluster %s has no array of workers", c.ID)
	}
	var a array
	for key, raw := range doc.Clouds[c.ID.Cloud].Workers {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			a.places = max(a.places, uint32(len(list)))
		}
		var names []string
		if (key == "hostnames" || key == "names" && a.hosts == nil) && json.Unmarshal(raw, &names) == nil {
			a.hosts = names
		}
	}
	return a, nil
}

// gaps is why nothing is done about an array with empty places, and what a person is to do. ksctl
// makes machines behind its last place only. Its delete would shorten it, but takes an empty name for
// the beginning of a Node's, and so deletes the first Node that there is.
func gaps(c *state.Cluster, a array) error {
	end, gap := 0, 0
	for i, host := range a.hosts {
		if host == "" {
			continue
		}
		if i > end {
			gap = i
		}
		end = i + 1
	}
	what := fmt.Sprintf("cut its arrays to %d, as config/agent/README.md says of HasGaps; don't have ksctl delete empty places, it would take other Nodes", end)
	if uint32(end) == a.places { // the last empty one has workers behind it
		what = fmt.Sprintf("have ksctl delete the workers behind (--noWP %d), then see HasGaps in config/agent/README.md", gap)
	}
	return refuse("HasGaps", "ksctl's state has %d places for %d workers, and ksctl fills no empty ones: %s", a.places, len(machines(c)), what)
}

// busy says why ksctl would refuse; nil: it would not.
func busy(c *state.Cluster) error {
	switch c.Phase {
	case "", "running", "configuring_failed":
		return nil
	}
	return refuse("Busy", "ksctl has the cluster as %s, in which it changes nothing: see what has become of it with ksctl", c.Phase)
}

// create adds workers. What ksctl is told is how many there are to be: told less than there
// are, it would forget machines that the cloud goes on with.
func (p *Provisioner) create(ctx context.Context, r provisioner.Request, c *state.Cluster) error {
	a, err := arrayOf(c)
	if err != nil {
		return err
	}
	have, count := a.places, uint32(len(machines(c)))
	switch {
	case have == r.Desired && count == have:
		return nil
	case have != count:
		return gaps(c, a)
	case have > r.Desired || r.From != have:
		return refuse("HasMoved", "workers are to be made from %d to %d, and there are %d", r.From, r.Desired, have)
	}
	if err := busy(c); err != nil {
		return err
	}
	return p.ksctl(ctx, p.Add, r, "--nodeSizeWP", r.Size)
}

// delete deletes workers from the end, if all of them have names.
func (p *Provisioner) delete(ctx context.Context, r provisioner.Request, c *state.Cluster) error {
	a, err := arrayOf(c)
	if err != nil || a.places <= r.Desired {
		return err
	}
	if n := uint32(len(a.hosts)); n > r.Desired && slices.Contains(a.hosts[r.Desired:], "") {
		return gaps(c, a)
	}
	if err := busy(c); err != nil {
		return err
	}
	return p.ksctl(ctx, p.Remove, r)
}

// ksctl runs it, and waits for it.
func (p *Provisioner) ksctl(ctx context.Context, command string, r provisioner.Request, more ...string) error {
	command = strings.NewReplacer("{type}", r.Cluster.Type, "{cloud}", r.Cluster.Cloud).Replace(command)
	args := append(strings.Fields(command), "-n", r.Cluster.Name, "-r", r.Cluster.Region, "-s", "store-local",
		"--noWP", strconv.FormatUint(uint64(r.Desired), 10), "--bootstrap", r.Cluster.Distribution)
	args = append(append(args, more...), p.Args...)
	log := p.Log
	if log == nil {
		log = os.Stderr
	}
	cmd := exec.CommandContext(ctx, p.Program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 5 * time.Second
	attach(cmd)
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return refuse("Interrupted", "ksctl was killed: %v", context.Cause(ctx))
	case cmd.ProcessState == nil:
		return refuse("NotStarted", "ksctl can't be started: %v", err)
	}
	// It tells a lack of machines from anything else in words alone, and words are no contract.
	return refuse("KsctlFailed", "ksctl ended with %s; the agent's log has what it said", cmd.ProcessState)
}
