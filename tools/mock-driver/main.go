// mock-driver is the mock CSI driver of Kubernetes' own storage tests as a program: volumes in memory and no data path. It
// registers itself with kubelet, and prints each call with what it answered. With --register-only it does no more than
// register a driver that another process serves.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Println("registered", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func told(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	fmt.Println("call", path.Base(info.FullMethod), status.Code(err))
	return answer, err
}

func listen(socket string) net.Listener {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		log.Fatal(err)
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func main() {
	name := flag.String("name", "mock.csi.k8s.io", "the driver's name")
	kubelet := flag.String("kubelet-dir", "/var/lib/kubelet", "kubelet's root directory")
	only := flag.Bool("register-only", false, "serve no driver: another process does")
	flag.Parse()
	endpoint := filepath.Join(*kubelet, "plugins", *name, "csi.sock")
	if !*only {
		mock := service.New(service.Config{DriverName: *name, DisableAttach: true, IO: service.OSDirIO{}})
		served := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: mock, Identity: mock, Node: mock})
		if err := served.Start(listen(endpoint), told); err != nil {
			log.Fatal(err)
		}
	}
	plugin := grpc.NewServer()
	registration.RegisterRegistrationServer(plugin, &registrar{name: *name, endpoint: endpoint})
	go func() { log.Fatal(plugin.Serve(listen(filepath.Join(*kubelet, "plugins_registry", *name+"-reg.sock")))) }()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}
