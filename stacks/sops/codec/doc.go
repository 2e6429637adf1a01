// Package codec decrypts and encrypts files of SOPS with its own library,
// github.com/getsops/sops/v3, in this process.
//
// That library takes what it needs from wherever it finds it: files of the home folder, the
// environment, programs, credentials of the machine. Here it is handed what a Secret holds,
// and asked for nothing else: a key for which there is nothing is not tried.
//
//   - The addresses in a file are its author's choice. Requests go to https only, never to a
//     link-local, loopback or metadata address ([Options]), and follow no redirect.
//   - A file can't choose an identity: roles to assume and profiles are refused, and so are
//     credentials that would run a program or read a file.
//   - Errors name keys and recipients, never a value of a file or of a Secret, whatever a
//     library or a server would say.
//
// A program that imports it has the SDKs of all clouds: stacks/sops is the contract for
// those that have another process do it.
package codec
