// Package scriptsapi serves the parts of Cloudflare's API for Workers scripts that deploy and
// delete scripts, for the WorkerDeployments of a namespace. An account is a WorkerAccount, and a
// script the WorkerDeployment <account>.<script>.
package scriptsapi
