package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/harness"
)

// smallDisk returns a folder with a small file system of its own.
func smallDisk() string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	err := syscall.Mount("none", dir, "tmpfs", 0, "size=2m")
	if errors.Is(err, syscall.EPERM) {
		Skip("mounting a small file system needs root")
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill writes a file until the disk is full, and keeps that file.
func fill(dir string) string {
	GinkgoHelper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = f.Close() }()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	Expect(err).To(MatchError(syscall.ENOSPC))
	return path
}

// awaitFailure waits until an install reports why it can't fetch a revision.
func (f *installSet) awaitFailure(ctx context.Context, install, text string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		in := &appsv1.KsctlInstall{}
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: f.ns, Name: install}, in)
		c := harness.ReadyCondition(in)
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), err
	}).WithTimeout(soon).Should(SatisfyAll(HavePrefix("False "), ContainSubstring(text)),
		"the install reports the error")
}

var _ = Describe("A failing disk", func() {
	DescribeTable("is reported, installed objects stay, and reconciles continue when it is repaired",
		func(ctx SpecContext, fail func(dir string) (mend func()), says string) {
			f := newInstallSet(ctx, map[string]int{"i": 30})
			dir := smallDisk()
			life := startController(ctx, f, nil, "--storage-path="+dir)
			f.install(ctx, "i", 1)
			f.awaitConverged(ctx)
			mend := fail(dir)
			DeferCleanup(mend) // otherwise it can't be unmounted
			before := versions(ctx, f)
			f.publish(ctx, "i", 2)
			f.awaitFailure(ctx, "i", says)
			after := versions(ctx, f)
			delete(before, "KsctlInstall i")
			delete(after, "KsctlInstall i")
			Expect(after).To(Equal(before), "no object is changed")
			Consistently(life.Done(), "100ms").ShouldNot(BeClosed())
			mend()
			f.awaitConverged(ctx)
			f.removeAll(ctx)
		},
		Entry("because it is full", func(dir string) func() {
			path := fill(dir)
			return func() { _ = os.Remove(path) }
		}, "no space left on device"),
		Entry("because it can't be written", func(dir string) func() {
			Eventually(func() error { // the mount is busy while a file is written
				return syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
			}).WithTimeout(soon).Should(Succeed())
			return func() { Expect(syscall.Mount("none", dir, "", syscall.MS_REMOUNT, "size=2m")).To(Succeed()) }
		}, "read-only file system"),
	)

	It("that is read-only at the start ends the controller, which reports it", func(ctx SpecContext) {
		f := newInstallSet(ctx, map[string]int{})
		dir := smallDisk()
		Expect(syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")).To(Succeed())
		life := startController(ctx, f, nil, "--storage-path="+filepath.Join(dir, "storage"))
		Eventually(ctx, life.Done()).WithTimeout(soon).Should(BeClosed())
		Expect(life.Err()).To(HaveOccurred())
		Expect(life.Log()).To(SatisfyAll(ContainSubstring(dir), ContainSubstring("read-only file system")))
	})
})
