package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/harness"
)

const folder = "testdata/stored"

// ours is true for the keys of objects that the scenario or the controller created.
func ours(key string) bool {
	parts := strings.Split(key, "/")
	switch {
	case parts[0] == "events" || parts[0] == "leases" || strings.HasSuffix(key, "/kube-root-ca.crt") ||
		strings.HasSuffix(key, "/default"):
		return false // of Kubernetes
	case slices.Contains(parts, ns) || slices.Contains(parts, createdNS):
		return true
	}
	return key == "clusterrolebindings/"+ns+"-"+harness.Deployer ||
		strings.HasPrefix(key, "secrets/"+harness.SystemNamespace+"/")
}

// stored returns our objects as they are in etcd, with placeholders for addresses.
func stored(ctx context.Context) map[string][]byte {
	GinkgoHelper()
	all, err := h.ControlPlane.EtcdObjects(ctx)
	Expect(err).NotTo(HaveOccurred())
	out := map[string][]byte{}
	for key, value := range all {
		if !ours(key) {
			continue
		}
		var pretty bytes.Buffer
		Expect(json.Indent(&pretty, []byte(placeholders.Replace(string(value))), "", "  ")).To(Succeed(), key)
		out[key] = append(bytes.TrimSpace(pretty.Bytes()), '\n')
	}
	return out
}

// files returns the objects of testdata by their keys.
func files() map[string][]byte {
	GinkgoHelper()
	out := map[string][]byte{}
	Expect(filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		key := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), folder+"/"), ".json")
		out[key], err = os.ReadFile(path)
		return err
	})).To(Succeed())
	return out
}

// restore puts the stored objects into etcd, and serves the sources that they refer to.
func restore(ctx context.Context) {
	GinkgoHelper()
	serve(ctx)
	objects := files()
	Expect(objects).NotTo(BeEmpty())
	for key, value := range objects {
		Expect(h.ControlPlane.PutEtcdObject(ctx, key, []byte(addresses.Replace(string(value))))).To(Succeed())
	}
}

// write replaces testdata with what is in etcd now.
func write(ctx context.Context) {
	GinkgoHelper()
	Expect(os.RemoveAll(folder)).To(Succeed())
	for key, value := range stored(ctx) {
		path := filepath.Join(folder, filepath.FromSlash(key)+".json")
		Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		Expect(os.WriteFile(path, value, 0o644)).To(Succeed())
	}
}

// withoutRequest returns an object without what a request changes: its annotation, the answer in
// the status, the time of the preview that is made for it, and the record of who set them.
func withoutRequest(value []byte) string {
	GinkgoHelper()
	var object map[string]any
	Expect(json.Unmarshal(value, &object)).To(Succeed())
	metadata, _ := object["metadata"].(map[string]any)
	delete(metadata, "managedFields")
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		delete(annotations, requestedAt)
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	if status, ok := object["status"].(map[string]any); ok {
		delete(status, "lastHandledReconcileAt")
		if removal, ok := status["removal"].(map[string]any); ok {
			delete(removal, "madeAt")
		}
	}
	out, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}
