ffmpeg -nostdin -loglevel error -f lavfi -i testsrc2=size=1280x720:rate=25:duration=26 -c:v libx264 -preset slow -threads 2 \
  -fflags +bitexact -flags:v +bitexact -progress pipe:1 -stats_period 0.5 video.mkv
