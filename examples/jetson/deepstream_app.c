/* A DeepStream pipeline whose frames are judged by ANoCo on the GPU; a line of JSON for each frame.
 *
 *   deepstream_app bank.f32 PATCHES DIM THRESHOLD 'uridecodebin uri=... ! mux.sink_0
 *     nvstreammux name=mux batch-size=1 width=1920 height=1080 !
 *     nvinfer name=backbone config-file-path=deepstream_nvinfer.txt ! fakesink'
 *
 * deepstream.md says how to build it and where the numbers come from. */
#include <gst/gst.h>
#include <stdlib.h>
#include <string.h>

#include "deepstream.h"
#include "gstnvdsinfer.h"
#include "gstnvdsmeta.h"

/* The features that nvinfer attached to a frame, on the GPU; NULL if there are none. */
static const void* find_features(const NvDsFrameMeta* frame) {
  for (NvDsMetaList* l = frame->frame_user_meta_list; l != NULL; l = l->next) {
    const NvDsUserMeta* user = (const NvDsUserMeta*)l->data;
    if (user->base_meta.meta_type != (NvDsMetaType)NVDSINFER_TENSOR_OUTPUT_META) continue;
    const NvDsInferTensorMeta* tensors = (const NvDsInferTensorMeta*)user->user_meta_data;
    for (guint k = 0; k < tensors->num_output_layers; ++k) {
      const NvDsInferLayerInfo* layer = &tensors->output_layers_info[k];
      if (strcmp(layer->layerName, "features") == 0 && layer->dataType == FLOAT)
        return tensors->out_buf_ptrs_dev[k];
    }
  }
  return NULL;
}

/* On the source pad of nvinfer. A frame that cannot be judged is an error and never good. */
static GstPadProbeReturn judge_batch(GstPad* pad, GstPadProbeInfo* info, gpointer data) {
  line_scorer* scorer = (line_scorer*)data;
  NvDsBatchMeta* batch = gst_buffer_get_nvds_batch_meta(GST_PAD_PROBE_INFO_BUFFER(info));
  (void)pad;
  if (batch == NULL) return GST_PAD_PROBE_OK;
  for (NvDsMetaList* l = batch->frame_meta_list; l != NULL; l = l->next) {
    static const char* const words[] = {"error", "good", "anomalous"};
    const NvDsFrameMeta* frame = (const NvDsFrameMeta*)l->data;
    const void* features = find_features(frame);
    float score = 0;
    const int verdict = features == NULL ? -1 : line_scorer_judge(scorer, features, &score);
    g_print("{\"source\": %u, \"frame\": %d, \"verdict\": \"%s\", \"score\": %g}\n",
            frame->source_id, frame->frame_num, words[verdict + 1], score);
  }
  return GST_PAD_PROBE_OK;
}

static gboolean on_message(GstBus* bus, GstMessage* message, gpointer loop) {
  (void)bus;
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
    GError* error = NULL;
    gst_message_parse_error(message, &error, NULL);
    g_printerr("%s\n", error->message);
    g_error_free(error);
  }
  if (GST_MESSAGE_TYPE(message) & (GST_MESSAGE_ERROR | GST_MESSAGE_EOS))
    g_main_loop_quit((GMainLoop*)loop);
  return TRUE;
}

/* Runs the pipeline to its end; 0 if it could be started. */
static int run(const char* description, line_scorer* scorer) {
  GError* error = NULL;
  GstElement* pipeline = gst_parse_launch(description, &error);
  if (error != NULL) return g_printerr("%s\n", error->message), g_error_free(error), 2;
  GstElement* backbone = gst_bin_get_by_name(GST_BIN(pipeline), "backbone");
  if (backbone == NULL) return g_printerr("no element has name=backbone\n"), 2;
  GstPad* pad = gst_element_get_static_pad(backbone, "src");
  GMainLoop* loop = g_main_loop_new(NULL, FALSE);
  GstBus* bus = gst_pipeline_get_bus(GST_PIPELINE(pipeline));
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, judge_batch, scorer, NULL);
  gst_bus_add_watch(bus, on_message, loop);
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  g_main_loop_run(loop);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(bus);
  gst_object_unref(pad);
  gst_object_unref(backbone);
  gst_object_unref(pipeline);
  g_main_loop_unref(loop);
  return 0;
}

int main(int count, char** words) {
  line_scorer scorer = {0};
  gst_init(&count, &words);
  if (count != 6) return g_printerr("%s BANK PATCHES DIM THRESHOLD PIPELINE\n", words[0]), 2;
  const int64_t dim = strtoll(words[3], NULL, 10);
  gchar* bank = NULL;
  gsize size = 0;
  if (!g_file_get_contents(words[1], &bank, &size, NULL) || dim <= 0 || size % (4 * dim) != 0)
    return g_printerr("%s does not hold rows of %s float32\n", words[1], words[3]), 2;
  scorer.patches = strtoll(words[2], NULL, 10);
  scorer.threshold = strtof(words[4], NULL);
  scorer.energy = g_new0(float, scorer.patches);
  int code = 3;
  if (line_scorer_open(&scorer, bank, ANOCO_FLOAT32, (int64_t)size / (4 * dim), dim, 0) == 0)
    code = run(words[5], &scorer);
  g_free(scorer.energy);
  line_scorer_close(&scorer);
  g_free(bank);
  return code;
}
