package kwok

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// Machines without a node are kept in a file beside that of the knobs: nothing else knows them.

func (p *Provisioner) lonePath(cluster provisioner.Cluster) string {
	return p.Config + "." + cluster.Name + ".machines"
}

// lone are the sizes of the machines that have no node, by their place.
func (p *Provisioner) lone(cluster provisioner.Cluster) (map[uint32]string, error) {
	out := map[uint32]string{}
	if p.Config == "" {
		return out, nil
	}
	data, err := os.ReadFile(p.lonePath(cluster))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	return out, err
}

func (p *Provisioner) change(cluster provisioner.Cluster, f func(map[uint32]string)) error {
	all, err := p.lone(cluster)
	if err != nil {
		return err
	}
	f(all)
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	path := p.lonePath(cluster)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("a machine without a node: %w", err)
	}
	return os.Rename(path+".new", path)
}

// keep notes a machine without a node.
func (p *Provisioner) keep(cluster provisioner.Cluster, index uint32, size string) error {
	return p.change(cluster, func(all map[uint32]string) { all[index] = size })
}

func (p *Provisioner) forget(cluster provisioner.Cluster, index uint32) error {
	return p.change(cluster, func(all map[uint32]string) { delete(all, index) })
}

// join gives machines that have none their node, unless the knob still keeps them from it.
func (p *Provisioner) join(ctx context.Context, cluster provisioner.Cluster, k Knobs) error {
	if k.NoNode {
		return nil
	}
	lone, err := p.lone(cluster)
	if err != nil {
		return err
	}
	for index, name := range lone {
		size, err := k.size(name)
		if err != nil {
			return err
		}
		if err := p.newNode(ctx, cluster, index, name, size, k); err != nil {
			return err
		}
		if err := p.forget(cluster, index); err != nil {
			return err
		}
	}
	return nil
}
