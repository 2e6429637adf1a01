// Package codec decrypts and encrypts SOPS files in this process, with the library
// github.com/getsops/sops/v3.
//
// By itself, that library takes keys from files of the home directory, the environment, programs
// and the credentials of the machine. This package passes it the content of a Secret only, and
// skips a key of the file if the Secret has nothing for it.
//
//   - The author of a file chooses the addresses in it. Requests go to https only, never to a
//     link-local, loopback or metadata address, and follow no redirect.
//   - A file can't choose an identity: roles to assume and profiles are refused, and so are
//     credentials that would run a program or read a file.
//   - Errors contain names of keys and recipients, never a value of a file or of a Secret, and no
//     text of a library or a server.
//
// This package links the SDKs of all clouds. Programs that decrypt in another process import only
// stacks/sops, the contract.
package codec
