// Package dynalite runs dynalite, a server with the API of DynamoDB, for tests. It needs Node.js
// and npm.
package dynalite

import (
	"bufio"
	"context"
	_ "embed" // of the pinned packages
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Credentials that Client uses. Dynalite accepts any.
const (
	AccessKeyID     = "dynalite"
	SecretAccessKey = "dynalite-secret"
)

var (
	//go:embed package.json
	packages []byte
	//go:embed package-lock.json
	lockfile []byte
)

// program is the server, for the port and the host in its arguments. It prints its port. Tables
// exist as soon as they are created.
const program = `const [port, host] = process.argv.slice(2)
require('dynalite')({createTableMs: 0, deleteTableMs: 0}).listen(port, host, function() {
  console.log(this.address().port)
})
process.on('SIGTERM', process.exit)
`

// programFile is the file name of the program.
const programFile = "server.js"

// MissingRequirement returns why dynalite cannot run here; "" if it can.
func MissingRequirement() string {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not on PATH: apt-get install nodejs npm"
		}
	}
	return ""
}

// Server is a running dynalite. Its tables are in memory.
type Server struct {
	// Host is its address, host:port.
	Host string

	process *exec.Cmd
}

// Install installs dynalite in a folder.
func Install(ctx context.Context, dir string) error {
	for name, content := range map[string][]byte{"package.json": packages, "package-lock.json": lockfile,
		programFile: []byte(program)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return nil
}

// Start starts dynalite, which is installed in a folder.
func Start(dir string) (*Server, error) {
	s := &Server{process: exec.Command("node", programFile, "0", "127.0.0.1")} //nolint:noctx // Stop ends it
	s.process.Dir, s.process.Stderr = dir, os.Stderr
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("reading the port of dynalite: %w", err)
	}
	s.Host = "127.0.0.1:" + strings.TrimSpace(port)
	return s, nil
}

// Stop ends the server.
func (s *Server) Stop() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// Client returns a client of the server.
func (s *Server) Client() *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://" + s.Host),
		Credentials: credentials.NewStaticCredentialsProvider(AccessKeyID, SecretAccessKey, "")})
}
