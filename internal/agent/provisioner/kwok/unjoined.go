package kwok

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/atomicfile"
)

// Machines without a node are recorded in a file beside the configuration file, because no Node
// object represents them.

func (p *Provisioner) unjoinedPath(cluster provisioner.Cluster) string {
	return p.ConfigFile + "." + cluster.Name + ".machines"
}

// readUnjoined returns the sizes of the machines without a node, by index.
func (p *Provisioner) readUnjoined(cluster provisioner.Cluster) (map[uint32]string, error) {
	out := map[uint32]string{}
	if p.ConfigFile == "" {
		return out, nil
	}
	data, err := os.ReadFile(p.unjoinedPath(cluster))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	return out, err
}

// setUnjoined records a machine without a node; the size "" removes it.
func (p *Provisioner) setUnjoined(cluster provisioner.Cluster, index uint32, size string) error {
	all, err := p.readUnjoined(cluster)
	if err != nil {
		return err
	}
	if all[index] = size; size == "" {
		delete(all, index)
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(p.unjoinedPath(cluster), data, 0o600); err != nil {
		return fmt.Errorf("recording a machine without a node: %w", err)
	}
	return nil
}

// joinMachines creates the nodes of machines without one, unless the configuration still sets
// NoNode.
func (p *Provisioner) joinMachines(ctx context.Context, cluster provisioner.Cluster, k Config) error {
	if k.NoNode {
		return nil
	}
	unjoined, err := p.readUnjoined(cluster)
	if err != nil {
		return err
	}
	for index, name := range unjoined {
		size, err := k.findSize(name)
		if err != nil {
			return err
		}
		if err := p.createNode(ctx, cluster, index, name, size, k); err != nil {
			return err
		}
		if err := p.setUnjoined(cluster, index, ""); err != nil {
			return err
		}
	}
	return nil
}
