// Package commitstatus writes to commits on GitHub, GitLab and Gitea how the
// installs that read a KsctlSource stand, as Flux's notification-controller does
// with its providers of these types.
//
// What is said follows from what installs are seen to be, never from single events:
// who asks late is told the newest state. What was said is remembered by this process
// alone; after a start, each install is said once.
package commitstatus
