// Package servers links the clients of the database servers in which the demonstration can keep its stock.
// A program without it compiles in a fraction of the time, and has files only.
package servers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
)

func init() { sql.Register("mysql-url", mysqlURL{}) }

// mysqlURL is MySQL's driver, but takes a URL.
type mysqlURL struct{}

// Open implements driver.Driver.
func (d mysqlURL) Open(rawURL string) (driver.Conn, error) {
	c, err := d.OpenConnector(rawURL)
	if err != nil {
		return nil, err
	}
	return c.Connect(context.Background())
}

// OpenConnector implements driver.DriverContext.
func (mysqlURL) OpenConnector(rawURL string) (driver.Connector, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("the URL is malformed") // it may hold a password
	}
	query := u.Query()
	socket := query.Get("socket")
	query.Del("socket")
	config, err := mysql.ParseDSN("tcp(127.0.0.1)/?" + query.Encode())
	if err != nil {
		return nil, err
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "3306"
	}
	config.Addr, config.DBName = net.JoinHostPort(host, port), strings.Trim(u.Path, "/")
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Logger = &mysql.NopLogger{} // errors are returned
	return mysql.NewConnector(config)
}
