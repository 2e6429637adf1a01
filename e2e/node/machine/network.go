package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// The network of the pods. The machine has the first address, and the API server listens on it.
const (
	bridge      = "ksctle2e0"
	networkName = "ksctl-e2e"
	subnet      = "10.244.0.0/24"
)

// Address is the machine's address in the network of the pods.
var Address = net.IPv4(10, 244, 0, 1)

// Connect creates the bridge and locks the machine; only one run at a time can have it, and others
// wait for it. It replaces a bridge of a killed run. The returned function removes the bridge and
// releases the lock.
func Connect(ctx context.Context) (disconnect func(context.Context) error, err error) {
	release, err := lockMachine(ctx)
	if err != nil {
		return nil, err
	}
	disconnect = func(ctx context.Context) error { return errors.Join(removeBridge(ctx), release()) }
	if err := removeBridge(ctx); err != nil {
		return nil, errors.Join(err, release())
	}
	for _, args := range [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"addr", "add", Address.String() + "/24", "dev", bridge},
		{"link", "set", bridge, "up"},
	} {
		if err := run(ctx, "ip", args...); err != nil {
			return nil, errors.Join(err, disconnect(ctx))
		}
	}
	return disconnect, nil
}

func removeBridge(ctx context.Context) error {
	if _, err := net.InterfaceByName(bridge); err != nil {
		return nil //nolint:nilerr // the bridge does not exist
	}
	return run(ctx, "ip", "link", "delete", bridge)
}

// writeNetworkConfig writes the CNI configuration, which containerd passes to the plugins.
// https://www.cni.dev/docs/spec/#configuration-format
func writeNetworkConfig(dir string) error {
	folder := filepath.Join(dir, "cni")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	config := fmt.Sprintf(`{"cniVersion": "0.4.0", "name": %q, "plugins": [
  {"type": "bridge", "bridge": %q, "isGateway": true, "hairpinMode": true, "ipam": {
    "type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q, "gateway": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}
]}`, networkName, bridge, filepath.Join(dir, "ipam"), subnet, Address)
	return os.WriteFile(filepath.Join(folder, "10-e2e.conflist"), []byte(config), 0o600)
}

func run(ctx context.Context, program string, args ...string) error {
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", program, args, err, bytes.TrimSpace(out))
	}
	return nil
}
