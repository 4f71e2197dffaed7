// Keeps a share of GOMEMLIMIT alive, and allocates for some seconds. Arguments: share, seconds.
package main

import (
	"math/rand"
	"os"
	"runtime/debug"
	"strconv"
	"time"
)

var latest []byte

func create() []byte {
	block := make([]byte, 16000)
	for at := 0; at < len(block); at += 4096 {
		block[at] = 1
	}
	return block
}

func main() {
	share, _ := strconv.ParseFloat(os.Args[1], 64)
	seconds, _ := strconv.Atoi(os.Args[2])
	most := share * float64(debug.SetMemoryLimit(-1))
	alive := [][]byte{}
	for float64(len(alive))*16000 < most {
		alive = append(alive, create())
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for count := 0; time.Now().Before(end); count++ {
		latest = make([]byte, 4000)
		if count%50 == 0 {
			alive[rand.Intn(len(alive))] = create()
		}
	}
}
